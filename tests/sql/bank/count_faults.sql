SELECT fault, count(*)
FROM calls
WHERE fault IS NOT NULL
GROUP BY fault
