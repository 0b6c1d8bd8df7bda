"""Evidence: its line, its two forms, the duty of roles, and how a pipeline checks it."""

from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app import errors
from app.domain import abstentions, evidence, operations
from app.domain.states import RunState
from tests.unit.dialects import bench

QUOTED = 'Evidence: "the lantern was dark" (Story/a.md)'
NAMED = "Evidence: receipt_id: rcpt_1f"
STEPS = [dict(step) | {"evidence": True} for step in bench.RECIPE["phase_b"]]


def code(reply: str, requirement: str = "any") -> str:
    """Return the code with which a reply is rejected."""
    reading = evidence.read(reply, requirement)
    assert isinstance(reading, evidence.Rejection), reading
    return reading.code


class TestReading:
    """The evidence in a reply."""

    @pytest.mark.parametrize(
        ("line", "quote", "path"),
        [
            ('Evidence: "a b" (x.md)', "a b", "x.md"),
            ('  evidence : "a b"(x.md).', "a b", "x.md"),
            ('**Evidence:** "a b" (`x.md`)', "a b", "x.md"),
            ('- **Evidence**: "a b" ( x.md )', "a b", "x.md"),
            ("> Evidence: “a b” (x.md)", "a b", "x.md"),
            ('1. EVIDENCE: "a" (x.md)', "a", "x.md"),
            ('Evidence: "he said "go" (softly)" (a (b)/x.md)', 'he said "go" (softly)', "a (b)/x.md"),
        ],
    )
    def test_words_of_a_file(self, line: str, quote: str, path: str) -> None:
        """A quotation and its path are read, however the line is decorated."""
        reading = evidence.read(f"It holds.\n{line}\nEnd.", "file")

        assert reading == evidence.Claim(line=2, quote=quote, path=path)

    @pytest.mark.parametrize(
        "line", [NAMED, "Evidence: receipt_id:rcpt_1f.", "**Evidence:** receipt_id: `rcpt_1f`", f"\t{NAMED}  "]
    )
    def test_a_receipt(self, line: str) -> None:
        """A receipt is read by its id."""
        assert evidence.read(line, "receipt") == evidence.Claim(line=1, receipt_id="rcpt_1f")

    @pytest.mark.parametrize(
        "line",
        [
            "Evidence:",
            "Evidence: see above",
            'Evidence: "a b"',
            "Evidence: a b (x.md)",
            'Evidence: "..." (x.md)',
            'Evidence: " " (x.md)',
            'Evidence: "a b" ()',
            "Evidence: rcpt_1f",
            "Evidence: receipt_id: 1f",
            f'{NAMED} "a b" (x.md)',
            f'Evidence: "{"a" * 5000}" (x.md)',
        ],
    )
    def test_neither_form(self, line: str) -> None:
        """A line that is neither a quotation with its path nor a receipt is malformed, and the error names it."""
        reading = evidence.read(f"\n{line}", "any")

        assert isinstance(reading, evidence.Rejection)
        assert (reading.code, reading.facts["line"]) == ("evidence_malformed", 2)

    @pytest.mark.parametrize(
        "line",
        [
            '**Evidence: "a b" (x.md)**',
            '*Evidence:* *"a b"* (x.md)',
            '**Evidence:** **"a b"** (`x.md`).',
            '`Evidence: "a b" (x.md)`',
            '+ Evidence: "a b" (x.md)',
            '• Evidence: "a b" (x.md)',
            '– Evidence: "a b" (x.md)',
            '- [x] Evidence: "a b" (x.md)',
            'a) Evidence: "a b" (x.md)',
            '✅ Evidence: "a b" (x.md)',
            '1️⃣ Evidence: "a b" (x.md)',
            'Evidence 1: "a b" (x.md)',
            "Evidence：„a b“ (x.md)",
            '\ufeffEvidence\u200b: "a b" (x.md)\u200b',
            'Evi\u00addence: "a b" (x.md)',
            'Ｅｖｉｄｅｎｃｅ: "a b" (x.md)',
            '<b>Evidence</b>: "a b" (x.md)',
            '| Evidence: "a b" (x.md)',
            '\u202eEvidence\u202c: "a b" (x.md)',
        ],
    )
    def test_evidence_is_read_behind_any_marks(self, line: str) -> None:
        """A line is read behind any marks, and a second one behind any marks is found too."""
        fenced = f"Dark.\n```\n{line}\n```"

        assert evidence.read(fenced, "any") == evidence.Claim(line=3, quote="a b", path="x.md")
        assert code(f"{line}\n{NAMED}") == "evidence_repeated"
        assert code(f"{NAMED}\r\n> {line}") == "evidence_repeated"

    @pytest.mark.parametrize(
        "line",
        [
            '"evidence": "It is dark.",',
            "'evidence': 'It is dark.'",
            "The evidence: it is dark.",
            "My Evidence: it is dark.",
            "Evidence of the lantern: it is dark.",
            "Evidence",
            "Evidence?",
            "Circumstantial-evidence: it is dark.",
            "evidence_text: it is dark.",
            "<evidence>It is dark.</evidence>",
        ],
    )
    def test_other_lines_are_not_evidence(self, line: str) -> None:
        """A key of JSON, a sentence and other words are not lines of evidence."""
        assert code(line) == "evidence_missing"
        assert isinstance(evidence.read(f"{line}\n{NAMED}", "any"), evidence.Claim)

    def test_an_end_of_a_line_hides_nothing(self) -> None:
        """Every character that ends a line for some reader ends it here."""
        for end in "\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029":
            assert code(f"{NAMED}{end}{QUOTED}") == "evidence_repeated", repr(end)

    @pytest.mark.parametrize(
        "claim",
        [
            '"a b" (x.md) and "c" (y.md), too',
            '"a b" (x.md) which proves it',
            '"a b" (x.md) [1]',
            '"a b" (x.md) rcpt_1f',
            '"a b" ("x.md")',
            '"\u200b" (x.md)',
            '"…" (x.md)',
            "'a b' (x.md)",
            "receipt_id: rcpt_1f, rcpt_2f",
            "receipt_id: rcpt_1f (x.md)",
            "receipt_id: rcpt_1\u200bf",
            "receipt_id: rcpt_",
            "receipt_id: RCPT_1f",
            "rcpt_1f",
        ],
    )
    def test_an_addition_to_a_form_is_malformed(self, claim: str) -> None:
        """An addition to a form, or other text in its place, makes the line malformed."""
        assert code(f"Evidence: {claim}") == "evidence_malformed"

    def test_two_quotations_in_a_line_are_one(self) -> None:
        """Two quotations are read as one from the last file, marks included, so that none passes unchecked."""
        reading = evidence.read('Evidence: "a" (x.md) "b" (y.md)', "any")

        assert reading == evidence.Claim(line=1, quote='a" (x.md) "b', path="y.md")

    def test_exactly_one_line(self) -> None:
        """A reply needs one line: none counts as missing and two as repeated, even if alike or behind a mark."""
        assert code("The evidence: it is dark.") == "evidence_missing"
        assert code("My Evidence: x") == "evidence_missing"
        assert code(f"{QUOTED}\n{QUOTED}") == "evidence_repeated"
        assert code(f"{NAMED}\ntext\n> **evidence**: {QUOTED}") == "evidence_repeated"

    def test_a_role_accepts_only_its_own_kind_of_evidence(self) -> None:
        """A role accepts its own kind only; a role without a duty may omit the line, but not write a faulty one."""
        assert code(NAMED, "file") == "evidence_kind"
        assert code(QUOTED, "receipt") == "evidence_kind"
        assert evidence.read("Nothing.", "none") == evidence.Exempt()
        assert isinstance(evidence.read(NAMED, "none"), evidence.Claim)
        assert code(f"{NAMED}\n{NAMED}", "none") == "evidence_repeated"
        assert code("Evidence: trust me", "none") == "evidence_malformed"

    @pytest.mark.parametrize(
        ("reply", "reason"),
        [
            ("ABSTAIN", "it gave no reason"),
            (" ABSTAIN: not my field\n", "not my field"),
            ("**ABSTAIN**", "it gave no reason"),
            ("ABSTAIN.", "it gave no reason"),
            ("`ABSTAIN`", "it gave no reason"),
            ("\ufeffABSTAIN\u200b\n", "it gave no reason"),
            ("ABSTAIN:", "it gave no reason"),
            ("**ABSTAIN:** not my field", "not my field"),
            ("**ABSTAIN**: not\nmy field", "not\nmy field"),
            ("> ABSTAIN: not my field", "not my field"),
            ("- ABSTAIN — not my field", "not my field"),
            ("ABSTAIN—not my field", "not my field"),
            ("## ABSTAIN\n\nNot my field.", "Not my field."),
            ("ABSTAIN. Not my field.", "Not my field."),
            ("```\nABSTAIN: not my field\n```", "not my field"),
            ("ABSTAIN：not my field", "not my field"),
            ("ABSTAIN from voting", None),
            ("ABSTAIN-ING", None),
            ("It is dark.\nABSTAIN", None),
            ("Evidence: ABSTAIN", None),
            ("ABSTAIN" + "*" * 100_000 + "x", None),
            ("*" * 100_000 + "ABSTAIN" + " " * 100_000 + "x", None),
            ("ABSTAINED", None),
            ("I ABSTAIN", None),
            ("abstain", None),
        ],
    )
    def test_abstaining(self, reply: str, reason: str | None) -> None:
        """Only a reply that is an abstention as a whole is one."""
        assert abstentions.reason(reply) == reason

    @given(st.text(), st.sampled_from(["none", "any", "file", "receipt"]))
    def test_any_text_is_read(self, reply: str, requirement: str) -> None:
        """Any text is read without an exception, and the result can be recorded."""
        reading = evidence.read(reply, requirement)

        assert isinstance(evidence.operation(reading), operations.Operation)

    def test_hostile_lines_are_read_at_once(self) -> None:
        """Long lines of marks, blanks and quotation marks are read quickly."""
        parts = (" ", "*", "1.", '"', '" (', "“", '"a"(', "`", "<", "<b>", "[x]", "a)", "\u200b", "Evidence ")
        for part in parts:
            evidence.read(f"{part * 100_000}Evidence: {part * 100_000}", "any")
            for beginning, end in (("", ""), ('"x" (', "b"), ('"x" (a', "b)x"), ('"x" (`', "`"), ('"', '" (a)x')):
                evidence.read(f"Evidence: {beginning}{part * (3900 // len(part))}{end}", "any")


class TestAsking:
    """How a prompt asks for evidence."""

    def test_the_forms_of_the_role_are_shown(self) -> None:
        """A prompt shows the forms that its role can use, with receipts only if one can be named."""
        receipts = {"found": "rcpt_1f"}

        assert evidence.request("none", receipts) == ""
        assert "receipt" not in evidence.request("file", receipts)
        assert "path/of/the/file" not in evidence.request("receipt", receipts)
        assert "- rcpt_1f: found" in evidence.request("any", receipts)
        assert "can be named" not in evidence.request("any", {})


def pipeline(requirement: str, reply: str, **changes: object) -> bench.Pipeline:
    """Return a pipeline with a given reply of its planner, and a writer that names a receipt."""
    made = bench.Pipeline(bench.recipe(phase_b=STEPS, **changes), bench.stock(evidence=requirement))
    made.tables.replies = {"brief": reply, "draft": NAMED}
    return made


class Rejecting:
    """A performer that finds no evidence."""

    async def perform(self, call: object) -> None:
        """Reject the evidence."""
        raise errors.EvidenceRejected("It is not there.", code="quote_not_found", detail={"evidence": {"path": "x"}})


class TestPipelines:
    """Steps of phase B with `evidence: true`."""

    async def test_the_check_is_a_step_of_its_own(self) -> None:
        """The check follows the reply, has the reply's place, and verifies the evidence of the line."""
        made = pipeline("any", f"Dark.\n{QUOTED}")

        assert await made.run() is RunState.DONE
        assert made.disk.recorded() == ["find", "read", "brief", "brief.evidence", "draft", "draft.evidence"]
        assert made.asked("brief.evidence").quote == "the lantern was dark"
        assert made.asked("brief.evidence").path == "Story/a.md"
        assert made.asked("draft.evidence").receipt_id == "rcpt_1f"
        line = made.lines()[3]
        assert [line[name] for name in ("step_id", "step_index", "phase", "output_slot")] == ["brief", 2, "b", None]
        assert made.disk.files["run.json"]["current_step_index"] == 4

    async def test_the_prompt_contains_the_forms_of_evidence(self) -> None:
        """The forms and the receipts of the step's slots follow the template; other steps do not get them."""
        made = pipeline("any", QUOTED)
        await made.run()
        receipts = [line["receipt_id"] for line in made.lines()[:2]]

        assert made.prompt("brief").startswith(
            "Task: Do it\n\nFound: finder ran\nFirst: one\nPlan it.\n\nEnd with exactly"
        )
        assert all(
            f"- {receipt}: {slot}" in made.prompt("brief")
            for receipt, slot in zip(receipts, ("found", "text"), strict=True)
        )
        assert "can be named" not in made.prompt("draft")
        plain = bench.Pipeline(bench.recipe(), bench.stock(evidence="any"))
        await plain.run()
        assert plain.prompt("brief") == "Task: Do it\n\nFound: finder ran\nFirst: one\nPlan it."
        assert plain.disk.recorded() == ["find", "read", "brief", "draft"]

    @pytest.mark.parametrize(
        ("requirement", "reply", "wanted"),
        [
            ("any", "It is dark.", "evidence_missing"),
            ("any", f"{QUOTED}\n{NAMED}", "evidence_repeated"),
            ("any", "Evidence: none", "evidence_malformed"),
            ("receipt", QUOTED, "evidence_kind"),
        ],
    )
    async def test_a_rejected_reply_fails_the_run(self, requirement: str, reply: str, wanted: str) -> None:
        """The run fails with the reason for the rejection, no slot is filled, and no step follows."""
        made = pipeline(requirement, reply)

        assert await made.run() is RunState.FAILED
        assert (made.error["code"], made.error["key"]) == (wanted, "brief.evidence")
        assert made.error["message"].startswith("The reply of the step brief was rejected for its evidence: ")
        assert made.error["detail"]["evidence"]["requirement"] == requirement
        assert made.disk.files["run.json"]["ending"]["reason"] == "evidence_rejected"
        assert made.disk.recorded()[-1] == "brief.evidence"
        assert list(made.slots) == ["found", "text"]

    async def test_evidence_that_the_check_rejects_fails_the_run(self) -> None:
        """The run fails with the performer's code and facts; a resume asks the agent again."""
        made = pipeline("any", QUOTED)
        made.performers["check_evidence"] = Rejecting()

        assert await made.run() is RunState.FAILED
        assert made.error["code"] == "quote_not_found"
        assert made.error["detail"] == {"evidence": {"path": "x"}}
        assert made.disk.files["run.json"]["ending"]["reason"] == "evidence_rejected"
        causes = json.loads(made.disk.control[-1])["causes"]
        assert [made.lines()[position]["key"] for position in causes] == ["brief", "brief.evidence"]

    async def test_a_role_without_a_duty_is_passed_over(self) -> None:
        """For a role without a duty the check is skipped, and the prompt does not mention evidence."""
        made = pipeline("none", "It is dark.")

        assert await made.run() is RunState.DONE
        assert made.lines()[3]["status"] == "skipped"
        assert "evidence" not in made.prompt("brief")

    async def test_micro_steps_are_checked_as_their_slot(self) -> None:
        """Finding and evidence together must have one line; only the last prompt asks for it."""
        prompts = {"write": {"t1": "--- triage\nLook.\n--- finding\nFind {{plan}}.\n--- evidence\nProve."}}
        registry = bench.stock(prompts, {"writer": "t1"}, evidence="any")
        made = bench.Pipeline(bench.recipe(phase_b=STEPS), registry)
        made.tables.replies = {"brief": QUOTED, "draft.evidence": NAMED}

        assert await made.run() is RunState.DONE
        keys = ["draft.triage", "draft.finding", "draft.evidence", "draft.evidence.evidence"]
        assert made.disk.recorded()[-4:] == keys
        assert ["End with exactly" in made.prompt(key) for key in keys[:3]] == [False, False, True]

        again = bench.Pipeline(bench.recipe(phase_b=STEPS), registry)
        again.tables.replies = {"brief": QUOTED, "draft.finding": NAMED, "draft.evidence": NAMED}
        assert await again.run() is RunState.FAILED
        assert again.error["code"] == "evidence_repeated"

    async def test_a_long_reply_is_read_whole(self) -> None:
        """A reply that is stored outside the journal is checked too."""
        made = pipeline("any", f"{'long ' * 20_000}\n{QUOTED}")

        assert await made.run() is RunState.DONE
        assert made.asked("brief.evidence").path == "Story/a.md"

    async def test_abstaining_fails_as_ever(self) -> None:
        """An abstention is reported as such, and needs no evidence."""
        made = pipeline("any", "ABSTAIN: not mine")

        assert await made.run() is RunState.FAILED
        assert made.error["code"] == "abstained"
        assert made.disk.recorded()[-1] == "brief"


def test_a_check_body_has_only_the_fields_of_its_form() -> None:
    """The body of a check has only the fields of its form, so that its hash stays the same."""
    reading = evidence.read(NAMED, "any")

    assert operations.body(evidence.operation(reading)) == {"kind": "check_evidence", "receipt_id": "rcpt_1f"}
    assert dataclasses.asdict(reading)["quote"] is None
