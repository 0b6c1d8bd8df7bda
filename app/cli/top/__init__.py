"""`control-room top`: waiting gates, running runs and costs, in the terminal."""

KEYS = """\
a, d    approve or deny the gate under the cursor: add a message, Enter confirms, Escape goes back
Enter   show the gate with all its options, or the run with its steps
o       open the page of the run in a browser
Tab     go to the other table; arrows, Page Up and Page Down move in it
?       show these keys
q       quit"""
"""Text about the keys."""
