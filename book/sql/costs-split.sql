SELECT cell AS 'requests, server', printf('%.0f', max(p50_us) FILTER (WHERE server = 'whole')) AS 'whole, p50',
  printf('%.0f', max(p50_us) FILTER (WHERE server = 'write')) AS 'write, p50',
  printf('%.0f', max(p50_us) FILTER (WHERE server = 'server')) AS 'server, p50',
  printf('%.0f', max(p50_us) FILTER (WHERE server = 'read')) AS 'read, p50',
  printf('%.0f', max(p99_us) FILTER (WHERE server = 'whole')) AS 'whole, p99',
  printf('%.0f', max(p99_us) FILTER (WHERE server = 'server')) AS 'server, p99'
FROM summaries
WHERE record = '2026-11-26-split'
GROUP BY cell
ORDER BY cell DESC
