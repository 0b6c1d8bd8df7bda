"""Closed classes of English words: kinship, parts of the body, colours, ranks, trades, units and verbs."""

from __future__ import annotations

PERSON = r"@[?~]?\d+\b"
"""A person or thing of the cast in a passage's text; `?` where a pronoun may mean another."""

MALE_WORDS = frozenset(
    "he him his himself man boy father brother son husband uncle nephew grandfather king lord sir mr master widower "
    "gentleman lad prince landlord fisherman priest monk abbot monsieur herr".split()
)
FEMALE_WORDS = frozenset(
    "she her hers herself woman girl mother sister daughter wife aunt niece grandmother queen lady mrs miss ms madam "
    "mistress widow lass princess landlady nun abbess midwife governess housemaid madame frau".split()
)

MALE_NOUNS = frozenset(
    "man boy lad gentleman fellow youth priest monk sailor soldier captain sergeant father brother son husband "
    "uncle nephew grandfather king lord prince ferryman fisherman carter driver innkeeper blacksmith farmer constable".split()
)
FEMALE_NOUNS = frozenset(
    "woman girl lady lass nun mother sister daughter wife aunt niece grandmother queen princess maid landlady widow nurse "
    "governess housekeeper midwife".split()
)
"""Who may be meant by `he` and `she` without having a name."""

KINSHIP = {
    "father": "parent", "mother": "parent", "parent": "parent", "dad": "parent", "papa": "parent", "mama": "parent",
    "mum": "parent", "son": "child", "daughter": "child", "child": "child", "brother": "sibling",
    "sister": "sibling", "sibling": "sibling", "twin": "sibling", "half-brother": "half-sibling",
    "half-sister": "half-sibling", "husband": "spouse", "wife": "spouse", "spouse": "spouse", "widow": "spouse",
    "widower": "spouse", "uncle": "uncle", "aunt": "uncle", "great-uncle": "great-uncle",
    "great-aunt": "great-uncle", "nephew": "nephew", "niece": "nephew", "great-niece": "great-nephew",
    "great-nephew": "great-nephew", "cousin": "cousin", "grandfather": "grandparent",
    "grandmother": "grandparent", "grandson": "grandchild", "granddaughter": "grandchild",
    "grandchild": "grandchild", "stepfather": "step-parent", "stepmother": "step-parent",
    "stepson": "step-child", "stepdaughter": "step-child", "stepbrother": "step-sibling",
    "stepsister": "step-sibling", "godfather": "godparent", "godmother": "godparent", "godson": "godchild",
    "goddaughter": "godchild", "brother-in-law": "sibling-in-law", "sister-in-law": "sibling-in-law",
    "father-in-law": "parent-in-law", "mother-in-law": "parent-in-law", "son-in-law": "child-in-law",
    "daughter-in-law": "child-in-law", "fiancé": "betrothed", "fiancée": "betrothed", "fiance": "betrothed",
    "fiancee": "betrothed", "betrothed": "betrothed",
}  # fmt: skip
"""Each word of kinship with what the one called so is to the other."""

INVERSE = {
    "parent": "child", "uncle": "nephew", "great-uncle": "great-nephew", "grandparent": "grandchild",
    "step-parent": "step-child", "godparent": "godchild", "parent-in-law": "child-in-law",
}  # fmt: skip
INVERSE |= {value: key for key, value in INVERSE.items()}
"""What A is to B where B is this to A; others are mutual."""

RANK_LADDERS = (
    "private corporal sergeant lieutenant captain major colonel general brigadier marshal ensign".split(),
    "constable sergeant inspector superintendent commissioner".split(),
    "midshipman boatswain bosun lieutenant commander captain commodore admiral purser helmsman cabin-boy".split(),
    "curate vicar rector bishop archbishop deacon archdeacon canon dean abbot prior novice cardinal".split(),
    "baron viscount earl marquess duke knight baronet count baroness countess duchess".split(),
)
"""Ranks; nobody has two of them at a time."""

RANKS = frozenset(rank for ladder in RANK_LADDERS for rank in ladder)

TRADES = frozenset(
    "actor actress apothecary architect archivist astronomer attorney auctioneer baker banker barber bargeman beekeeper "
    "bookbinder bookseller botanist brewer bricklayer builder butcher butler cabinetmaker candlemaker carpenter "
    "carter cartographer cartwright chandler chemist clerk clockmaker coachman cobbler constable cook cooper "
    "coroner cutler dentist doctor draper dressmaker dyer engineer engraver farmer farrier ferryman fiddler "
    "fisherman florist forester gamekeeper gardener gaoler glassblower glazier goldsmith governess grocer gunsmith "
    "harbourmaster hatter housekeeper innkeeper jeweller joiner journalist judge laundress lawyer librarian "
    "lighthouse-keeper locksmith magistrate mason mechanic merchant midwife miller milliner miner musician notary "
    "nurse organist ostler painter pharmacist photographer physician pilot piper plumber poacher postman postmaster "
    "postmistress potter printer programmer ropemaker saddler sailmaker sailor schoolmaster schoolmistress "
    "schoolteacher sculptor seamstress sexton shepherd shipwright shoemaker shopkeeper smith blacksmith solicitor "
    "stationmaster stonemason surgeon surveyor tailor tanner teacher thatcher tinsmith tinker translator "
    "undertaker upholsterer verger veterinarian vet vintner watchmaker weaver wheelwright woodcutter".split()
)
"""Trades that a story gives somebody for good."""

SPEECH_VERBS = (
    "said|says|say|asked|asks|answered|answers|whispered|whispers|shouted|shouts|cried|cries|replied|replies|called|"
    "calls|muttered|mutters|murmured|added|adds|went on|goes on|snapped|sighed|told|tells|repeated|began|warned|"
    "laughed|agreed|admitted|announced|insisted|offered|observed|remarked|returned|continued|explained|growled|"
    "grunted|conceded|declared|suggested|protested|promised|put in|cut in|finished|demanded|echoed|ventured|"
    "prompted|corrected|confirmed|begged|urged|breathed|hissed|groaned|shot back|wanted to know"
)
"""Verbs that ascribe speech, as alternatives of an expression."""

PAST = (
    "said|asked|came|went|stood|sat|took|gave|held|ran|rose|spoke|shook|turned|put|laid|drew|led|made|got|fell|began|met|brought|"
    "caught|sent|told|wrote|read|smiled|lit|let|kept|set|cut|drank|ate|wore|bent|threw|blew|swore|sang|saw|heard|looked|leaned|shut|"
    "stepped|nodded|grinned|spat|swung|slid|fed|rode|rang|swept|tore|broke|drove|bit|chose|crept|dealt|dug|fought|flung|flew|froze|"
    "grew|hid|hit|hung|knelt|knew|leapt|lay|lent|paid|rang|sold|sewed|shone|shot|sank|slept|sprang|stole|stuck|struck|strode|swam|"
    "thought|trod|understood|wept|won|wound|wrung|woke|bought|bound|built|burst|clung|felt|found|left|lost|meant|quit|ground|split|spread|spun"
)
"""Irregular verbs in the past, as alternatives of an expression."""
