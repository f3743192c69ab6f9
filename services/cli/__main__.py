"""`python -m services.cli`: the same as `longtail`."""

from services.cli.app import main

main()
