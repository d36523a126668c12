"""What the Python clients have in common: many payments at once, and one line of JSON about each.

Arguments: the URL, the first amount, the number of payments, the timeout in seconds.
"""

import json
import sys
from concurrent.futures import ThreadPoolExecutor

AT_ONCE = 8


def make(client):
    url, first, number, timeout = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    pay = client(url, timeout)

    def attempt(amount):
        try:
            return {"amount": amount, "id": pay(amount)}
        except Exception as error:
            return {"amount": amount, "error": f"{type(error).__name__}: {error}"}

    with ThreadPoolExecutor(AT_ONCE) as pool:
        for made in pool.map(attempt, range(first, first + number)):
            print(json.dumps(made), flush=True)
