-- What wrk needs to send several requests at once: wrk -s bench/pipeline.lua ... -- NUMBER
init = function(args)
  local requests = {}
  for i = 1, tonumber(args[1]) do requests[i] = wrk.format() end
  batch = table.concat(requests)
end
request = function() return batch end
