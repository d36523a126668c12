SELECT count(*)
FROM calls
WHERE reference = ?1
