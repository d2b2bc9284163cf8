import sys

if __name__ == "__main__":
    if not sys.flags.safe_path:
        del sys.path[0]  # the current directory, where a rich.py may lie that is not rich; the script has it not either
    from moca.cli import main

    main()
