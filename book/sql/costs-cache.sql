SELECT cell, server, printf('%.2f', server_cpu_us_per_request) AS 'CPU µs', printf('%,d', rps) AS 'requests per second'
FROM summaries
WHERE record = '2026-11-22-cache'
ORDER BY cell, server
