"""`python -m tlm.cli`, as the command `tlm`."""

from tlm.cli.main import main

if __name__ == "__main__":
    main()
