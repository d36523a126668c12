-- Deletes a lease if nothing of it counts any more. KEYS: the lease. ARGV: now.

local key, now = KEYS[1], clock(ARGV[1])

local l = read(key)
if l and now > kept_until(l) then
  redis.call('DEL', key)
  return 'purged'
end
return 'kept'
