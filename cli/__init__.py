"""The `trimtab` command. Each subcommand has a folder with `options.py` and `run.py`."""
