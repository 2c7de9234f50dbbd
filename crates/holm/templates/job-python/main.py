"""A job: each task gets its arguments as `--name value`.

holm run job {{name}} --data '[{"city": "Bonn"}, {"city": "Köln"}]'
"""

import os
import sys


def task(arguments):
    """Replace this with what a task does. An exception makes it fail, and it is tried again."""
    print(f"task {os.environ.get('TASK_INDEX', '0')}:", arguments, flush=True)


if __name__ == "__main__":
    words = sys.argv[1:]
    task({name.removeprefix("--"): value for name, value in zip(words[::2], words[1::2])})
