-- Deletes a lease if nothing of it counts any more. KEYS: the lease.

local l = read(key)
if l and now > kept_until(l) then
  redis.call('DEL', key)
  return 'purged'
end
return 'kept'
