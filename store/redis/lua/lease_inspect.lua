-- What an operator sees of a resource. KEYS: the lease.

local l = read(key)
if l == false then
  return { 'unreadable' }
end
if not l or now > kept_until(l) then
  return { 'absent' }
end
return { 'known', text(l.token), runs(l, now) and text(l.lease_until - now) }
