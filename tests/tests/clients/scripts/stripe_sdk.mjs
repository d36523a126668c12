// Payments by Stripe's SDK for Node: it makes the keys, and decides what is tried again and when.

import Stripe from 'stripe';

import { make } from './payments.mjs';

await make((url, timeout) => {
  const { protocol, hostname: host, port } = new URL(url);
  const sdk = new Stripe('sk_test_0', { protocol: protocol.slice(0, -1), host, port, timeout, maxNetworkRetries: 12 });
  return async (amount) => (await sdk.paymentIntents.create({ amount, currency: 'eur' })).id;
});
