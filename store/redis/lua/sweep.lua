-- Drops the payload, or deletes the record with its steps, if its time is over now. KEYS: the record.

local r = read(key)
if not r then
  return 'kept'
end
if now > kept_until(r) then
  local standing, was_in_doubt = stand(r, now)
  redis.call('DEL', key)
  return standing == 'absent' and was_in_doubt and 'escaped' or 'purged'
end
if r.state == COMPLETED and r.outcome == KEPT and now >= later(r.since, r.response) then
  redis.call('HDEL', key, 'p')
  r.outcome = NOT_KEPT
  write(key, r, now, 'c', packed_course(r))
  return 'dropped'
end
return 'kept'
