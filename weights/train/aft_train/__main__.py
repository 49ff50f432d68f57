import sys

from aft_train_cli import main

sys.exit(main())
