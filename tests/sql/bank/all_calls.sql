SELECT seq, reference, amount, key, fault, at
FROM calls
ORDER BY seq
