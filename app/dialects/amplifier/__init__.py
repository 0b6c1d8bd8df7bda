"""
The dialect amplifier: prompts to agents in order, with conditions, loops and approvals (amplifier-recipe-schema).
"""
