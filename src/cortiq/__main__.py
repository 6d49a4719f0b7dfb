"""``python -m cortiq`` is the command line."""

from cortiq.cli.main import entry_point

if __name__ == "__main__":
    entry_point()
