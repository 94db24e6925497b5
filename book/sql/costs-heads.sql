WITH heads(cell, at, name, bytes) AS (VALUES ('least', 1, 'the least', 50), ('browser', 2, 'as a browser sends it', 480),
    ('cookie-2k', 3, 'with a cookie of 2 KiB', 2540), ('cookie-6k', 4, 'with a cookie of 6 KiB', 6640))
SELECT name AS 'head', max(printf('%.2f', server_cpu_us_per_request)) FILTER (WHERE server = 'highwater') AS 'io_uring, CPU µs',
  max(printf('%.2f', server_cpu_us_per_request)) FILTER (WHERE server = 'highwater-epoll') AS 'epoll, CPU µs',
  max(printf('%.0f', p50_us)) FILTER (WHERE server = 'highwater') AS 'io_uring, p50 µs',
  max(printf('%.0f', p50_us)) FILTER (WHERE server = 'highwater-epoll') AS 'epoll, p50 µs'
FROM summaries JOIN heads USING (cell)
WHERE record = '2026-11-23-heads'
GROUP BY cell
ORDER BY at
