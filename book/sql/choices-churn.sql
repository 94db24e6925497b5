SELECT server, printf('%.1f', max(server_cpu_us_per_request) FILTER (WHERE cell = 'close-2k')) AS '2000 per second',
  printf('%.1f', max(server_cpu_us_per_request) FILTER (WHERE cell = 'close-8k')) AS '8000 per second', printf('%.1f',
  max(server_cpu_us_per_request) FILTER (WHERE cell = 'close-peak')) AS 'at the peak'
FROM summaries
WHERE record = '2026-11-26-churn'
GROUP BY server
ORDER BY 3
