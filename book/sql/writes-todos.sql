SELECT cell, server, printf('%.2f', server_cpu_us_per_request) AS 'CPU µs', printf('%,d', rps) AS
  'requests per second', printf('%.1f', p99_us / 1000) AS 'p99, ms'
FROM summaries
WHERE record IN ('2026-11-22-todos-lists', '2026-11-22-todos-writes')
ORDER BY cell DESC, server
