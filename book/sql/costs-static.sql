SELECT cell, server, printf('%.3f', server_cpu_us_per_request) AS 'CPU µs'
FROM summaries
WHERE record = '2026-11-22-static'
ORDER BY cell, server
