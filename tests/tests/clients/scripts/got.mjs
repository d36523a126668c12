// Payments by got and its retries, under a key of our own for each payment.

import { randomUUID } from 'node:crypto';

import got from 'got';

import { make } from './payments.mjs';

await make((url, timeout) => {
  // POST is not among what it tries again by itself, nor is 409: a caller with keys adds both. Without `maxRetryAfter` it gives up
  // when it is asked to wait for longer than its timeout.
  const retry = { limit: 12, methods: ['POST'], statusCodes: [409, 502, 503, 504], maxRetryAfter: 5000, backoffLimit: 2000 };
  const client = got.extend({ prefixUrl: url, timeout: { request: timeout }, retry });
  return async (amount) => {
    const headers = { 'Idempotency-Key': randomUUID() };
    const answer = await client.post('charge?after=300', { json: { amount }, headers }).json();
    return answer.id;
  };
});
