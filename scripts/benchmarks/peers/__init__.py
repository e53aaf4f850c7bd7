"""What users do without packer. Each is a script that is timed as a process, and prints its figures as JSON.

    python -m benchmarks.peers.by_X --tokenizer FOLDER --out FOLDER --workers N FILE.jsonl ...

They are given plain JSON Lines with a `text` (or `messages`) field, and all of them end each document with EOS.
"""
