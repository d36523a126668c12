"""Payments by requests and the retries of urllib3, under a key of our own for each payment."""

import uuid

import requests
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

import payments


def client(url, timeout):
    # POST is not among what it tries again by itself, nor is 409: a caller with keys adds both.
    retry = Retry(total=12, backoff_factor=0.1, allowed_methods=None, status_forcelist=[409, 502, 503, 504])
    session = requests.Session()
    session.mount("http://", HTTPAdapter(max_retries=retry, pool_maxsize=payments.AT_ONCE))

    def pay(amount):
        key = {"Idempotency-Key": str(uuid.uuid4())}
        answer = session.post(f"{url}/charge?after=300", json={"amount": amount}, headers=key, timeout=timeout)
        answer.raise_for_status()
        return answer.json()["id"]

    return pay


payments.make(client)
