WITH found AS (SELECT cell, server, place, printf('%.2f (%s)', ratio, interval_2) AS times
    FROM intervals
    WHERE record = '2026-11-26-protocols')
SELECT cell, max(times) FILTER (WHERE server = 'highwater') AS 'Highwater, io_uring',
  max(times) FILTER (WHERE server = 'highwater-epoll') AS 'Highwater, epoll',
  coalesce(max(times) FILTER (WHERE server = 'h2o'), '') AS 'libh2o',
  coalesce(max(times) FILTER (WHERE server = 'uws'), '') AS 'uWebSockets',
  coalesce(max(times) FILTER (WHERE server = 'floor-tls'), '') AS 'bare loop'
FROM found
GROUP BY cell
ORDER BY min(place)
