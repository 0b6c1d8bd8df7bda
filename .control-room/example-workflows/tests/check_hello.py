"""What greetings must be."""

from src import hello

assert hello.greeting("Mira") == "Hello, Mira!"
