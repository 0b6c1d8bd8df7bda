"""
The dialect orchestrate: workflows of commands and prompts to programs, with files as their queues (workflow-dsl).
"""
