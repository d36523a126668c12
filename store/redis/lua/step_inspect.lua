-- One step with its calls. KEYS: the record. ARGV: label.

local label = ARGV[1]

local known, refused = read_kept_step(key, now, label)
if not known then
  return { refused }
end
local s = known.step
if not s then
  return { 'missing' }
end
local calls = {}
local begins = 'c' .. label .. '\0'
for _, name in ipairs(redis.call('HKEYS', STEPS)) do
  if string.sub(name, 1, #begins) == begins then
    local packed, text_of = unpack(redis.call('HMGET', STEPS, name, 'e' .. string.sub(name, 2)))
    local c = unpacked_call(packed, text_of)
    if not c then
      return { 'unreadable' }
    end
    if c.number > 0 then
      calls[#calls + 1] =
        { c.number, text(c.token), text(c.begun_at), text(c.ended_at), c.ending, c.kept, c.text or false }
    end
  end
end
local who, why = unpack(redis.call('HMGET', STEPS, 'w' .. label, 'y' .. label))
return told('known', s, now, s.call, text(s.token), who, why, calls)
