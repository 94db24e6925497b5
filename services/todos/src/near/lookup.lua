-- Is there a list? KEYS: todos:state, the list's key. ARGV: an epoch in case there is none.
-- Answers the epoch, the version, and the list's bytes if it is of that version.
local state = redis.call('HMGET', KEYS[1], 'epoch', 'version', KEYS[2])
if not state[1] then
  redis.call('HSET', KEYS[1], 'epoch', ARGV[1], 'version', '0')
  return {ARGV[1], '0'}
end
local list = state[3] and redis.call('GET', KEYS[2])
if list then
  return {state[1], state[2], list}
end
return {state[1], state[2]}
