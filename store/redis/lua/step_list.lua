-- What operators see of all steps of a record. KEYS: the record.

local r = read(key)
if r == false then
  return { 'unreadable' }
end
if not r or not r.steps or not keeps_steps(r, now) then
  return { 'missing' }
end
local steps = {}
for _, name in ipairs(redis.call('HKEYS', STEPS)) do
  if #name > 1 and string.sub(name, 1, 1) == 's' then
    local label = string.sub(name, 2)
    local packed, result, who, why = unpack(redis.call('HMGET', STEPS, name, 'r' .. label, 'w' .. label, 'y' .. label))
    local s = unpacked_step(label, packed, result)
    if s then
      steps[#steps + 1] =
        { label, step_standing(s, now), text(step_age(s, now)), s.call, text(s.token), who, why }
    else
      steps[#steps + 1] = { label, 'unreadable' }
    end
  end
end
return { 'known', steps }
