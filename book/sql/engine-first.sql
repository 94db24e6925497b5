SELECT coalesce(name, server) AS server, server_cpu_us_per_request AS 'CPU µs', cell
FROM summaries LEFT JOIN names USING (server)
WHERE record = '2026-11-21-engine' AND cell IN ('plaintext', 'json')
ORDER BY cell DESC, server_cpu_us_per_request
