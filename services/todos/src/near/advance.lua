-- There is a version of the store. KEYS: todos:state, todos:version. ARGV: the version, an epoch in case there is none.
-- Forgets every list that is older, and answers 1 if that was news.
local state = redis.call('HMGET', KEYS[1], 'epoch', 'version')
if state[2] and tonumber(state[2]) >= tonumber(ARGV[1]) then
  return 0
end
for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
  if field ~= 'epoch' and field ~= 'version' then
    redis.call('UNLINK', field)
  end
end
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'epoch', state[1] or ARGV[2], 'version', ARGV[1])
-- Who follows this key drops its copies.
redis.call('SET', KEYS[2], ARGV[1])
return 1
