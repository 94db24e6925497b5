SELECT server, server_cpu_us_per_request AS 'CPU µs', cell
FROM summaries
WHERE record = '2026-11-22-io-models' AND cell != 'pipeline'
ORDER BY cell, server_cpu_us_per_request
