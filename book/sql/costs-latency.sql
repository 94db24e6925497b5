SELECT cell, server, printf('%.0f', p50_us) AS 'p50, µs', printf('%.0f', p99_us) AS 'p99, µs', printf('%.2f',
  server_cpu_us_per_request) AS 'CPU µs'
FROM summaries
WHERE record = '2026-11-22-latency'
ORDER BY substr(cell, 1, 1), length(cell), cell, server
