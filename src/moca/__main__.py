from moca.cli import main

main()
