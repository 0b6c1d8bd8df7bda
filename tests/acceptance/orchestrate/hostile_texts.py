"""Texts that are made to harm programs that read them as a workflow."""

from __future__ import annotations

STEPS = 'steps:\n  - {name: Never, command: [touch, never]}\n'  # fmt: skip
HEAD = f'version: "1.1"\n{STEPS}'

_BOMB = "".join(f"  a{n + 1}: &a{n + 1} [{', '.join([f'*a{n}'] * 10)}]\n" for n in range(9))

TEXTS: dict[str, str | bytes] = {
    "alias-bomb": f"version: '1.1'\ncontext:\n  a0: &a0 [x, x]\n{_BOMB}{STEPS}",
    "alias-of-itself": f"version: '1.1'\ncontext: &c\n  again: *c\n{STEPS}",
    "merge-bomb": f"version: '1.1'\ncontext:\n  a: &a {{x: 1}}\n  b: {{<<: *a}}\n{STEPS}",
    "50-megabytes": f"{HEAD}# {'x' * 50_000_000}\n",
    "deep-lists": f"{HEAD}context: {{a: {'[' * 100_000}{']' * 100_000}}}\n",
    "deep-objects": f"{HEAD}context: {'{a: ' * 50_000}1{'}' * 50_000}\n",
    "deep-blocks": f"{HEAD}context:\n" + "".join(f"{' ' * n}a:\n" for n in range(1, 300)),
    "repeated-name": f"{HEAD}name: one\nname: two\n",
    "repeated-field": 'version: "1.1"\nsteps:\n  - {name: A, command: [touch, never], command: [touch, never]}\n',
    "python-tag": f"{HEAD}context: {{a: !!python/object/apply:os.system ['touch never']}}\n",
    "two-documents": f"{HEAD}---\n{HEAD}",
    "no-utf8": HEAD.encode() + b"name: \xff\xfe\n",
    "nul": f'{HEAD}name: "a\\0b"\n',
    "control": f"{HEAD}name: \x07\n",
    "huge-number": f"{HEAD}context: {{a: {'9' * 5_000}}}\n",
    "not-a-number": f"{HEAD}context: {{a: .inf}}\n",
    "empty": "",
    "a-list": "- 1\n",
    "a-tab": 'version: "1.1"\nsteps:\n\t- name: A\n',
    "open-quote": f'{HEAD}name: "never ends\n',
    "name-that-is-a-path": 'version: "1.1"\nsteps:\n  - {name: ../../out, command: [touch, never]}\n',
    "provider-that-is-none": 'version: "1.1"\nsteps:\n  - {name: A, provider: [claude]}\n',
    "goto-nowhere": 'version: "1.1"\nsteps:\n  - {name: A, command: [touch, never], on: {failure: {goto: B}}}\n',
    "unknown-field": 'version: "1.1"\nsteps:\n  - {name: A, command: [touch, never], comand: [x]}\n',
}
"""Texts by a descriptive name; none is a valid workflow, and any executed command would create the file `never`."""
