"""Payments by Stripe's SDK for Python: it makes the keys, and decides what is tried again and when."""

import stripe

import payments


def client(url, timeout):
    transport = stripe.RequestsClient(timeout=timeout)
    sdk = stripe.StripeClient("sk_test_0", base_addresses={"api": url}, max_network_retries=12, http_client=transport)

    def pay(amount):
        return sdk.v1.payment_intents.create({"amount": amount, "currency": "eur"}).id

    return pay


payments.make(client)
