SELECT coalesce(name, server) AS server, server_cpu_us_per_request AS 'CPU µs'
FROM summaries LEFT JOIN names USING (server)
WHERE record = '2026-11-21-engine' AND cell = 'pipeline' AND server_cpu_us_per_request < 3
ORDER BY 2
