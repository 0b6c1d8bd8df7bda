"""
Short passages that contradict each other, and as many that only seem to; for the tests of the two tools.

Each entry has a kind, a card (or none), and what the scenes say. They are written in many manners on purpose: a rule
that fits only one of them is no rule.
"""

from __future__ import annotations

EDDA = "# Edda Marsh\n\n- **Pronouns:** she\n- **Age:** 41\n- **Eyes:** blue\n- **Hair:** red\n"
TOBY = "---\nname: Toby Lark\nkind: character\npronouns: he\n---\n"

FOUND: list[tuple[str, str, str, list[str]]] = [
    # age
    ("age", "apposition", EDDA, ["Edda Marsh, who was thirty-six, shut the gate behind the last of the goats."]),
    ("age", "commas", EDDA, ["They asked Edda first. Edda, fifty-three, told them nothing."]),
    ("age", "figures", "# Silas Penn\n\n| Field | Value |\n| --- | --- |\n| Age | 62 |\n| Work | bargeman |\n", ["Silas Penn was 57 years old, and his back told him so."]),
    ("age", "prose card", "# Silas Penn\n\nSilas Penn is a bargeman of sixty-two. He drinks tea and nothing else.\n", ["Silas Penn was fifty-seven, and his back told him so."]),
    ("age", "adjective", EDDA, ["It was the thirty-year-old Edda Marsh who carried the lamp."]),
    ("age", "woman of", EDDA, ["Edda came in. She was a tall woman of thirty, and she stooped under the lintel."]),
    ("age", "speech", "", ["\"I'm nineteen,\" said Toby. \"Nobody tells me when to go to bed.\"", "Toby Lark was twenty-three, and nobody had told him when to go to bed for years."]),
    ("age", "first person", "", ["I was fourteen that summer, and I thought that I knew every boat on the canal.", "I was eleven years old and I had never been so cold."]),
    ("age", "born", "# Silas Penn\n\n- Pronouns: he\n- Born: 3 May 1850\n", ["---\ndate: 4 June 1890\n---\nSilas Penn was thirty-two, and his back told him so."]),
    ("age", "birthday", EDDA, ["They kept Edda's thirtieth birthday in the barn, with lanterns."]),
    # appearance
    ("appearance", "possessive", EDDA, ["Edda's brown eyes went from the letter to the door."]),
    ("appearance", "predicate", EDDA, ["Edda turned round. Her eyes were a very dark brown, almost the brown of the river."]),
    ("appearance", "whose", EDDA, ["Edda, whose black hair was coming down, laughed at him."]),
    ("appearance", "haired", EDDA, ["The black-haired Edda Marsh had come by the morning boat."]),
    ("appearance", "of colour", "# Toby Lark\n\nHe has a broken nose, a quick temper and eyes of the palest grey.\n", ["Toby looked up. His eyes were brown, and there was straw in his hair."]),
    ("appearance", "with", "", ["Wren Abbot was a small woman with green eyes and a cough.", "Wren Abbot had brown eyes, and they missed very little."]),
    ("appearance", "blond", EDDA, ["Edda pushed a strand of blond hair behind her ear and went on counting."]),
    ("appearance", "first person", "# Toby Lark\n\nNarrator of the book. Hair: sandy. He has blue eyes.\n", ["I have my mother's chin and my father's brown eyes, and I have never been grateful for either."]),
    # side
    ("side", "scar", "# Edda Marsh\n\n- Pronouns: she\n- Scar: left cheek\n", ["Edda touched the scar on her right cheek, as she always did before she lied."]),
    ("side", "eye", "# Toby Lark\n\nHe lost his left eye at Corran Bridge.\n", ["Toby wore a patch over his right eye, and he could hit a crow at forty paces."]),
    ("side", "leg", "", ["Silas Penn limped on the left leg when it rained.", "Silas Penn came up the towpath slowly. His right leg had been stiff since the lock gate fell on it."]),
    ("side", "hand", "# Edda Marsh\n\n- Pronouns: she\n- Handedness: left-handed\n", ["Edda signed the receipt with her right hand and blew on the ink."]),
    ("side", "missing", "# Toby Lark\n\nPronouns: he\n\nTwo fingers are missing from his right hand.\n", ["Toby spread his left hand on the table, so that they could all see the two missing fingers."]),
    ("side", "deaf", "", ["\"Speak up,\" said Silas, who was deaf in the right ear.", "Silas turned his head. He was deaf on the left side, and the engine stood to his right."]),
    ("side", "arm", "", ["Toby Lark's left sleeve was pinned up, empty.", "Toby Lark reached up with his left hand and took the key off its nail."]),
    # name spelling
    ("name_spelling", "first name", "# Joos Verhagen\n\nPronouns: he\n", ["Jos Verhagen had the tiller. \"Mind the bridge,\" said Joos."]),
    ("name_spelling", "surname", "# Edda Marsh\n\nShe keeps goats.\n", ["Edda Marsh was late.", "They had asked for Miss Edda Marsch, and nobody of the name was in the house."]),
    ("name_spelling", "place", "", ["We came to Harrowby by noon. Harrowby has one street. In Harrowby they keep geese.", "The road goes on from Harowby to the sea."]),
    # place side
    ("place_side", "bank", "# The Mill\n\nKind: place\n\nThe mill stands on the east bank of the Wend.\n", ["They could see the mill from the ferry. The mill stood on the west bank, black against the snow."]),
    ("place_side", "street", "", ["The bakery was on the north side of Cutler Street, where the sun came in.", "The bakery stood on the south side of the street, and the flour on its sill was wet."]),
    ("place_side", "card field", "# St Anne's\n\n- Kind: place\n- Side: north side of the river\n", ["St Anne's stood on the south side of the river, among the tanneries."]),
    ("place_side", "left bank", "", ["The ropeworks lies on the left bank, below the weir.", "On the right bank stood the ropeworks, with all its windows lit."]),
    # death
    ("death", "speaks", "", ["Old Silas Penn died in the night. They buried him on Friday.", "\"You're late,\" said Silas Penn, and pushed the bread across the table."]),
    ("death", "acts", "", ["We carried Edda Marsh to the churchyard. Edda Marsh had died of the fever.", "Edda Marsh came down the lane with a basket on her arm and waved."]),
    ("death", "card", "# Silas Penn\n\n- Pronouns: he\n- Died: 3 May 1890\n", ["---\ndate: 1 August 1891\n---\nSilas Penn stood at the lock and coiled the rope."]),
    ("death", "killed", "", ["Toby Lark was killed at the bridge. I saw him fall.", "Toby Lark nodded, put down his pack and asked for water."]),
    ("death", "two years", "# Silas Penn\n\n- Pronouns: he\n- Died: drowned in 1887\n", ["---\ndate: 1 August 1891\n---\nEdda stood by the grave. Silas Penn had died in 1889, in his own bed."]),
    # dates and order
    ("dates_order", "weekday", "", ["---\ndate: 1901-05-03\n---\nOn Friday the third of May they opened the lock.", "---\ndate: 1901-05-08\n---\nThe eighth was a Tuesday, and nobody worked."]),
    ("dates_order", "event", "", ["The flood of 1871 had taken the old bridge.", "Nobody had crossed there since the flood of 1875."]),
    ("dates_order", "next day", "", ["They came on a Tuesday, the seventh of April.", "The next day was a Thursday, and it snowed."]),
    ("dates_order", "built", "# The Ropeworks\n\n- Kind: place\n- Built: 1822\n", ["The Ropeworks was built in 1841, by a man who had never seen a ship."]),
    ("dates_order", "backwards", "", ["---\nscene: 1\ndate: 4 May 1901\n---\nRain.", "---\nscene: 2\ndate: 2 May 1901\n---\nSnow."]),
    # distance and travel
    ("distance_travel", "miles", "", ["It is nine miles from Corran to Harrowby, and the road is bad.", "Harrowby lies fourteen miles from Corran, over the hill."]),
    ("distance_travel", "hours", "", ["It took two hours to row from Corran to Harrowby.", "From Harrowby to Corran it is five hours by boat."]),
    ("distance_travel", "card", "# Harrowby\n\n- Kind: place\n- Distance: six miles from Corran\n", ["Between Corran and Harrowby there are eleven miles of moor."]),
    ("distance_travel", "ride", "", ["Harrowby was three days' ride from Corran.", "He had left Corran at dawn, and Harrowby is only a day's ride from Corran."]),
    # possession
    ("possession", "given", "", ["Edda Marsh gave Toby Lark the silver whistle and told him to keep it.", "Edda took the silver whistle out of her pocket and blew it twice."]),
    ("possession", "thrown", "", ["Toby Lark threw the pistol into the canal, as far out as he could.", "Toby drew the pistol from his belt and laid it on the table."]),
    ("possession", "sold", "", ["Silas Penn sold the mare to Toby Lark for eleven pounds.", "Silas Penn saddled the mare. Silas still had the mare, and he would not part with her."]),
    ("possession", "card owner", "# The Lantern Watch\n\n- Kind: item\n- Owner: Edda Marsh\n", ["Toby Lark looked up. Toby's Lantern Watch had stopped at noon."]),
    # rank and relation
    ("rank_relation", "rank", "# Ivo Brand\n\n- Pronouns: he\n- Rank: sergeant\n", ["\"Sit down,\" said Lieutenant Brand, and they sat."]),
    ("rank_relation", "title", "", ["Captain Ivo Brand had the watch.", "\"Not tonight,\" said Major Brand."]),
    ("rank_relation", "kin", "# Edda Marsh\n\n- Pronouns: she\n- Sister: Wren Abbot\n", ["Edda's cousin Wren Abbot had the other bed."]),
    ("rank_relation", "apposition", "", ["Toby Lark, Edda's younger brother, held the horse. Edda Marsh thanked him.", "Toby Lark was Edda's nephew, and he did as he was told."]),
    ("rank_relation", "trade", "# Silas Penn\n\n- Pronouns: he\n- Occupation: cooper\n", ["Silas Penn was a farrier, as his father had been."]),
    ("rank_relation", "wife", "# Wren Abbot\n\nEdda's sister. She keeps bees.\n", ["\"My wife Wren sends her love,\" said Edda. Edda Marsh put on her hat."]),
]  # fmt: skip

INNOCENT: list[tuple[str, str, str, list[str]]] = [
    ("age", "past", EDDA, ["When Edda was twelve, her father had built the barn."]),
    ("age", "had been", EDDA, ["Edda had been nineteen when she first saw the sea."]),
    ("age", "estimate", EDDA, ["Edda was about forty, by the look of her."]),
    ("age", "another", EDDA, ["Edda had a niece. The niece was eleven, and she ate like a wolf."]),
    ("age", "birthday", EDDA, ["Edda turned forty-two on the Sunday, and told nobody."]),
    ("age", "years later", "", ["---\ndate: 1 May 1901\n---\nToby Lark was ten, and small.", "---\ndate: 1 May 1905\n---\nToby Lark was fourteen, and not small."]),
    ("age", "question", EDDA, ["\"Edda is fifty?\" said Toby. \"Never.\""]),
    ("age", "count", EDDA, ["Edda was thirty miles from home."]),
    ("appearance", "light", EDDA, ["In the lamplight Edda's eyes looked black."]),
    ("appearance", "dyed", EDDA, ["Edda had dyed her hair black for the part, and it made her look like a widow."]),
    ("appearance", "cat", EDDA, ["Edda looked into the cat's green eyes."]),
    ("appearance", "mother's", EDDA, ["Edda's mother's brown eyes had been famous."]),
    ("appearance", "shade", EDDA, ["Edda's ginger hair was full of chaff."]),
    ("appearance", "simile", EDDA, ["Edda's eyes were as blue as ever; only the rims were red."]),
    ("appearance", "stranger", EDDA, ["Edda met a stranger at the stile. He had brown eyes and a bad hat."]),
    ("appearance", "girl", EDDA, ["Edda opened the door. A girl stood on the step. Her brown eyes were red from the wind."]),
    ("side", "mirror", "# Edda Marsh\n\n- Pronouns: she\n- Scar: left cheek\n", ["In the mirror the scar was on Edda's right cheek."]),
    ("side", "other hand", "# Edda Marsh\n\n- Pronouns: she\n- Handedness: left-handed\n", ["Edda held the lamp in her right hand."]),
    ("side", "two scars", "# Edda Marsh\n\n- Pronouns: she\n- Scar: left cheek\n", ["Edda had another scar on her right cheek, a small one."]),
    ("side", "other person", "# Edda Marsh\n\n- Pronouns: she\n- Scar: left cheek\n", ["Toby Lark had a scar on his right cheek."]),
    ("side", "good eye", "# Toby Lark\n\nHe lost his left eye at Corran Bridge.\n", ["Toby rubbed his good right eye and looked again."]),
    ("side", "right away", "# Toby Lark\n\nHe lost his left eye at Corran Bridge.\n", ["Toby came right away, with one eye shut."]),
    ("name_spelling", "nickname", "# Tobias Lark\n\nPronouns: he\nCalled: Toby\n", ["Toby came in. \"Tobias,\" said his mother, \"your boots.\""]),
    ("name_spelling", "two cards", "# Hanna Holt\n\nShe sews.\n", ["Hanna Holt sewed. Hanne Frost did not; Hanne Frost sang."]),
    ("name_spelling", "plural", "# Edda Marsh\n\nShe keeps goats.\n", ["All the Larks were there. Toby Lark came last."]),
    ("place_side", "moved", "", ["The bakery was on the north side of Cutler Street.", "The bakery had once been on the south side of the street, before the fire."]),
    ("place_side", "two", "", ["The bakery was on the north side of Cutler Street.", "The chandlery was on the south side of Cutler Street."]),
    ("place_side", "inside", "", ["The bakery was on the north side of Cutler Street.", "The bakery had its oven on the south side of the yard."]),
    ("place_side", "crossed", "", ["The mill stood on the east bank.", "From the mill they crossed to the west bank."]),
    ("death", "memory", "", ["Silas Penn died in the night.", "Edda remembered what Silas Penn had said about the lock."]),
    ("death", "believed", "", ["They all thought that Silas Penn was dead.", "\"You're late,\" said Silas Penn."]),
    ("death", "before", "", ["\"You're late,\" said Silas Penn.", "Silas Penn died in the night."]),
    ("death", "tired", "", ["Silas Penn was dead tired.", "\"You're late,\" said Silas Penn."]),
    ("death", "flashback", "", ["Silas Penn died in the night.", "---\nflashback: true\n---\n\"You're late,\" said Silas Penn."]),
    ("death", "would", "", ["Without the bread Silas Penn would have died.", "\"You're late,\" said Silas Penn."]),
    ("death", "card later", "# Silas Penn\n\n- Pronouns: he\n- Died: 3 May 1890\n", ["---\ndate: 1 August 1889\n---\nSilas Penn stood at the lock and coiled the rope."]),
    ("dates_order", "weekday", "", ["---\ndate: 1901-05-03\n---\nOn Friday the third of May they opened the lock.", "---\ndate: 1901-05-08\n---\nThe eighth was a Wednesday, and nobody worked."]),
    ("dates_order", "two floods", "", ["The flood of 1871 had taken the old bridge, and the flood of 1875 had taken the new one."]),
    ("dates_order", "next day", "", ["They came on a Tuesday, the seventh of April.", "The next day was a Wednesday, and it snowed."]),
    ("distance_travel", "other way", "", ["It is nine miles from Corran to Harrowby.", "It is fourteen miles from Corran to Senning."]),
    ("distance_travel", "other mode", "", ["It took two hours to row from Corran to Harrowby.", "From Harrowby to Corran it is five hours on foot."]),
    ("distance_travel", "rounding", "", ["It is nine miles from Corran to Harrowby.", "It is ten miles from Harrowby to Corran, near enough."]),
    ("distance_travel", "detour", "", ["It is nine miles from Corran to Harrowby.", "It is twenty miles from Corran to Harrowby by the old drove road, instead of nine."]),
    ("possession", "given back", "", ["Edda Marsh gave Toby Lark the silver whistle.", "Toby gave the whistle back to Edda.", "Edda took the silver whistle out of her pocket and blew it."]),
    ("possession", "found", "", ["Toby Lark threw the pistol into the canal.", "They found the pistol in the mud at low water.", "Toby drew the pistol from his belt."]),
    ("possession", "another", "", ["Toby Lark threw the pistol into the canal.", "Toby drew another pistol from his belt."]),
    ("possession", "same", "", ["Edda Marsh gave Toby Lark the silver whistle.", "Toby took the silver whistle out of his pocket."]),
    ("rank_relation", "promoted", "", ["Sergeant Brand had the watch.", "They had made Brand a lieutenant in the spring.", "\"Sit down,\" said Lieutenant Brand."]),
    ("rank_relation", "like", "# Edda Marsh\n\n- Pronouns: she\n- Sister: Wren Abbot\n", ["Wren Abbot was like a mother to Edda."]),
    ("rank_relation", "inverse", "# Edda Marsh\n\n- Pronouns: she\n- Son: Toby Lark\n", ["Toby's mother Edda had the other bed."]),
    ("rank_relation", "priest", "# Corvin Ashe\n\nHe is the uncle of Edda Marsh.\n", ["Father Corvin came in. Edda Marsh rose."]),
    ("rank_relation", "namesake", "", ["Captain Ivo Brand had the watch.", "\"Not tonight,\" said Major Lark."]),
]  # fmt: skip
