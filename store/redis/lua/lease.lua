-- A lease: one hash.
--
-- v  the format, '1'
-- c  its course: token, lease end, whether somebody holds it, the holder's nonce
-- d  dead nonces
-- n  the resource's name, for people

local FORMAT = '1'
local COURSE, COURSE_SIZE = '>i8i8Bc16', 33
local NOBODY = string.rep('\0', 16)

-- The last token is remembered far longer than it has to be: it costs little, and a clock may step.
local MARGIN = 86400000000

-- The lease: nil when there is none, false when it cannot be read.
local function read(key)
  local found = fields(key, 'v', 'c', 'd')
  if not found then
    return found
  end
  local version, course, dead = unpack(found)
  if version ~= FORMAT or not course or #course ~= COURSE_SIZE then
    return false
  end
  local l = { dead = dead or '' }
  local held
  l.token, l.lease_until, held, l.holder = struct.unpack(COURSE, course)
  if #l.dead % DEAD_SIZE ~= 0 or l.token < 0 or held > 1 or (held == 1 and l.token == 0) then
    return false
  end
  l.held = held == 1
  return l
end

local function kept_until(l)
  local kept = math.max(l.lease_until, dead_until(l.dead))
  if l.token > 0 then
    kept = math.max(kept, later(l.token, HOLD))
  end
  return kept
end

local function runs(l, now)
  return l.held and now < l.lease_until
end

local function is_held_by(l, token, nonce)
  return l.held and l.token == token and l.holder == nonce
end

local function write(key, l, now, name)
  local course = struct.pack(COURSE, l.token, l.lease_until, l.held and 1 or 0, l.held and l.holder or NOBODY)
  local changed = { 'v', FORMAT, 'c', course }
  if l.dead ~= '' then
    changed[#changed + 1], changed[#changed + 2] = 'd', l.dead
  end
  if name then
    changed[#changed + 1], changed[#changed + 2] = 'n', name
  end
  redis.call('HSET', key, unpack(changed))
  expire(key, kept_until(l), now, MARGIN)
end

local function free(l, now)
  l.held = false
  l.lease_until = math.min(l.lease_until, now)
end
