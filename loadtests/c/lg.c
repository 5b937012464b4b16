/*
 * lg: a closed-loop load generator for chat completions. One thread, epoll, keep-alive connections.
 *
 *   cc -O2 -o lg lg.c && ./lg -p PORT -k KEY -m MODEL -c CONNECTIONS -n REQUESTS [-s [-u]] [-t SECONDS] [-a PATH]
 *
 *   -s   ask for streams, with stream_options.include_usage: true
 *   -u   leave stream_options out
 *   -t   stop starting requests after SECONDS (default 60); those under way get 10 s more, then count as errors
 *   -a   ask at PATH instead of /v1/chat/completions
 *
 * Each connection sends a request of about 1.3 KB (some 200 tokens of prompt), reads the whole answer and starts again,
 * until REQUESTS are done; one that ends with its answer is opened anew. An answer with another status than 200, a
 * broken one and a lost connection are errors; the first is described on stderr. Prints one JSON object: times in ms,
 * `events` counts the "data:" lines of streams, `reads` the reads that brought at least one.
 *
 * Linux only (epoll).
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { HEAD_SIZE = 16 * 1024, READ_SIZE = 64 * 1024, SAMPLE_SIZE = 300 };
static const int64_t STRAGGLERS_NS = INT64_C(10000000000);

/* How the body of the answer is delimited, and within a chunked one the part that comes next. */
typedef enum { HEAD, LENGTH, UNTIL_CLOSE, CHUNK_SIZE, CHUNK_DATA, CHUNK_END, TRAILER } Part;

typedef struct {
    int fd;
    bool busy; /* a request is under way */
    bool complete, broken;
    bool closes; /* the connection ends with this answer */
    int status;
    Part part;
    size_t left;            /* bytes of the body or chunk that are still to come */
    size_t line;            /* length of the current chunk-size or trailer line */
    int matched;            /* characters of "data:" matched in this line; -1: this line is something else */
    long events;
    int64_t start_ns, first_ns, last_ns;
    size_t head_length;
    char head[HEAD_SIZE];
    size_t sample_length;   /* start of the body of an answer that is not 200 */
    char sample[SAMPLE_SIZE + 1];
} Connection;

typedef struct {
    float *values;
    size_t count, size;
} Series;

static struct {
    int port, connections;
    long requests;
    const char *model, *key, *path;
    bool stream, usage;
    int64_t stop_ns;
} options = {.connections = 1,
             .requests = 1,
             .model = "mock",
             .key = "none",
             .path = "/v1/chat/completions",
             .usage = true,
             .stop_ns = 60000000000};

static char *request;
static size_t request_length;
static int epoll_fd;
static Series latency, first_event, gap;
static long issued, done, errors, events, reads;
static int64_t bytes_received;

static void fail(const char *why) {
    fprintf(stderr, "lg: %s\n", why);
    exit(1);
}

static void *must(void *pointer) {
    if (pointer == NULL) fail("out of memory");
    return pointer;
}

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

/* ---- statistics ---------------------------------------------------------------------------------------------- */

static void record(Series *series, int64_t from_ns, int64_t to_ns) {
    if (series->count == series->size) {
        series->size = series->size ? series->size * 2 : 1024;
        series->values = must(realloc(series->values, series->size * sizeof *series->values));
    }
    series->values[series->count++] = (float)((double)(to_ns - from_ns) / 1e6);
}

static int by_value(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static void sort(Series *series) {
    if (series->count) qsort(series->values, series->count, sizeof *series->values, by_value);
}

/* Nearest rank: the smallest value that is at least as large as a share `p` of all. */
static double percentile(const Series *series, double p) {
    if (series->count == 0) return 0;
    size_t rank = (size_t)(p * (double)series->count);
    if ((double)rank < p * (double)series->count) rank++;
    return series->values[rank ? rank - 1 : 0];
}

static void count_error(const char *what, const Connection *c) {
    if (errors++) return;
    fprintf(stderr, "lg: %s (status %d): %s\n", what, c->status, c->sample);
}

/* ---- the answer ---------------------------------------------------------------------------------------------- */

static void count_events(Connection *c, const char *p, const char *end) {
    static const char field[] = "data:";
    while (p < end) {
        if (c->matched < 0) { /* nothing to see until the next line */
            p = memchr(p, '\n', (size_t)(end - p));
            if (!p) return;
            c->matched = 0;
        } else if (*p != field[c->matched]) {
            c->matched = *p == '\n' ? 0 : -1;
        } else if (++c->matched == (int)sizeof field - 1) {
            c->events++;
            c->matched = -1;
        }
        p++;
    }
}

static void take_payload(Connection *c, const char *p, size_t length) {
    if (c->status == 200) {
        if (options.stream) count_events(c, p, p + length);
        return;
    }
    size_t room = SAMPLE_SIZE - c->sample_length, kept = length < room ? length : room;
    memcpy(c->sample + c->sample_length, p, kept);
    c->sample_length += kept;
    c->sample[c->sample_length] = 0;
}

static void take_head(Connection *c) {
    c->part = UNTIL_CLOSE;
    bool old = c->head_length >= 12 && memcmp(c->head, "HTTP/1.0 ", 9) == 0;
    if (c->head_length < 12 || (!old && memcmp(c->head, "HTTP/1.1 ", 9) != 0)) {
        c->broken = true;
        return;
    }
    c->closes = old;
    c->status = atoi(c->head + 9);
    const char *end = c->head + c->head_length;
    for (const char *line = c->head; line < end;) {
        if (strncasecmp(line, "content-length:", 15) == 0) {
            c->part = LENGTH;
            c->left = strtoul(line + 15, NULL, 10);
            c->complete = c->left == 0;
        }
        if (strncasecmp(line, "transfer-encoding: chunked", 26) == 0) {
            c->part = CHUNK_SIZE;
            c->left = c->line = 0;
        }
        if (strncasecmp(line, "connection: close", 17) == 0) c->closes = true;
        const char *line_end = memchr(line, '\n', (size_t)(end - line));
        if (!line_end) break;
        line = line_end + 1;
    }
}

static int hexadecimal(char digit) {
    if (digit >= '0' && digit <= '9') return digit - '0';
    digit |= 0x20;
    return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

/* One byte of an answer's head or of the framing between chunks. */
static void take_framing(Connection *c, char byte) {
    switch (c->part) {
    case HEAD:
        if (c->head_length == HEAD_SIZE - 1) {
            c->broken = true;
            return;
        }
        c->head[c->head_length++] = byte;
        c->head[c->head_length] = 0;
        if (byte == '\n' && c->head_length >= 4 && !memcmp(c->head + c->head_length - 4, "\r\n\r\n", 4)) take_head(c);
        return;
    case CHUNK_SIZE:
        if (byte == '\n') {
            c->part = c->left ? CHUNK_DATA : TRAILER;
            c->line = 0;
        } else if (byte != '\r') {
            int digit = hexadecimal(byte);
            if (digit < 0) c->broken = true;
            c->left = c->left * 16 + (size_t)digit;
        }
        return;
    case CHUNK_END:
        if (byte == '\n') c->part = CHUNK_SIZE;
        else if (byte != '\r') c->broken = true;
        return;
    case TRAILER:
        if (byte == '\n') {
            if (c->line == 0) c->complete = true;
            c->line = 0;
        } else if (byte != '\r') {
            c->line++;
        }
        return;
    default:
        c->broken = true;
    }
}

static void take_bytes(Connection *c, const char *p, size_t length) {
    const char *end = p + length;
    while (p < end && !c->complete && !c->broken) {
        if (c->part != LENGTH && c->part != UNTIL_CLOSE && c->part != CHUNK_DATA) {
            take_framing(c, *p++);
            continue;
        }
        size_t here = (size_t)(end - p);
        if (c->part != UNTIL_CLOSE) {
            if (here > c->left) here = c->left;
            c->left -= here;
        }
        take_payload(c, p, here);
        p += here;
        if (c->part == LENGTH && c->left == 0) c->complete = true;
        if (c->part == CHUNK_DATA && c->left == 0) c->part = CHUNK_END;
    }
    if (p < end) c->broken = true; /* more than was asked for */
}

/* ---- connections --------------------------------------------------------------------------------------------- */

static void open_connection(Connection *c) {
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)options.port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (connect(c->fd, (struct sockaddr *)&address, sizeof address)) fail(strerror(errno));
    int one = 1;
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, c->fd, &e);
}

static void reconnect(Connection *c) {
    close(c->fd);
    open_connection(c);
}

static void start_request(Connection *c) {
    issued++;
    c->busy = true;
    c->complete = c->broken = c->closes = false;
    c->status = 0;
    c->part = HEAD;
    c->matched = 0;
    c->events = 0;
    c->head_length = c->sample_length = 0;
    c->sample[0] = 0;
    c->first_ns = c->last_ns = 0;
    c->start_ns = now_ns();
    /* An idle connection's socket buffer holds a whole request; a short write would be an error, and shows as one. */
    if (send(c->fd, request, request_length, MSG_NOSIGNAL) != (ssize_t)request_length) shutdown(c->fd, SHUT_RDWR);
}

static void finish_request(Connection *c, int64_t now) {
    c->busy = false;
    done++;
    if (c->broken) count_error("broken answer or lost connection", c);
    else if (c->status != 200) count_error("refused", c);
    record(&latency, c->start_ns, now);
    if (c->first_ns) record(&first_event, c->start_ns, c->first_ns);
    events += c->events;
    if (c->broken || c->closes || c->part == UNTIL_CLOSE) reconnect(c);
}

static void receive(Connection *c) {
    static char buffer[READ_SIZE];
    ssize_t got = recv(c->fd, buffer, sizeof buffer, 0);
    if (got < 0 && errno == EAGAIN) return;
    int64_t now = now_ns();
    if (!c->busy) { /* the server closes an idle connection, or talks unasked */
        if (got > 0) count_error("bytes that nobody asked for", c);
        reconnect(c);
        return;
    }
    if (got <= 0) {
        if (got == 0 && c->part == UNTIL_CLOSE) c->complete = true;
        else c->broken = true;
    } else {
        bytes_received += got;
        long before = c->events;
        take_bytes(c, buffer, (size_t)got);
        if (c->events > before) {
            reads++;
            if (c->first_ns == 0) c->first_ns = now;
            else record(&gap, c->last_ns, now);
            c->last_ns = now;
        }
    }
    if (c->complete || c->broken) finish_request(c, now);
}

/* ---- the run ------------------------------------------------------------------------------------------------- */

static void prepare_request(void) {
    char prompt[1001] = "";
    for (size_t i = 0; strlen(prompt) + sizeof "lorem ipsum " < sizeof prompt; i++)
        strcat(prompt, i % 3 ? "lorem ipsum " : "dolor ");
    const char *stream = !options.stream ? ""
                         : options.usage ? ",\"stream\":true,\"stream_options\":{\"include_usage\":true}"
                                         : ",\"stream\":true";
    char *body;
    int body_length = asprintf(&body,
                               "{\"model\":\"%s\",\"messages\":[{\"role\":\"system\",\"content\":\"You are a helpful "
                               "assistant.\"},{\"role\":\"user\",\"content\":\"%s\"}],\"temperature\":0.7,"
                               "\"max_tokens\":256%s}",
                               options.model, prompt, stream);
    int length = asprintf(&request,
                          "POST %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nUser-Agent: lg/1\r\n"
                          "Accept: */*\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\n"
                          "Content-Length: %d\r\n\r\n%s",
                          options.path, options.port, options.key, body_length, body);
    if (body_length < 0 || length < 0) fail("out of memory");
    free(body);
    request_length = (size_t)length;
}

static void read_options(int argc, char **argv) {
    int option;
    while ((option = getopt(argc, argv, "p:k:m:c:n:sut:a:")) != -1) {
        switch (option) {
        case 'p': options.port = atoi(optarg); break;
        case 'k': options.key = optarg; break;
        case 'm': options.model = optarg; break;
        case 'c': options.connections = atoi(optarg); break;
        case 'n': options.requests = atol(optarg); break;
        case 's': options.stream = true; break;
        case 'u': options.usage = false; break;
        case 'a': options.path = optarg; break;
        case 't': options.stop_ns = (int64_t)(atof(optarg) * 1e9); break;
        default: exit(2);
        }
    }
    if (options.port < 1 || options.connections < 1 || options.requests < 1) {
        fputs("lg: -p, -c and -n must be positive\n", stderr);
        exit(2);
    }
}

static void print_result(double seconds) {
    sort(&latency);
    sort(&first_event);
    sort(&gap);
    printf("{\"n\":%ld,\"err\":%ld,\"sec\":%.4f,\"rps\":%.1f,\"bytes\":%lld,\"events\":%ld,\"reads\":%ld,"
           "\"p50\":%.4f,\"p90\":%.4f,\"p99\":%.4f,\"max\":%.4f,\"ttft50\":%.4f,\"ttft99\":%.4f,"
           "\"gap50\":%.4f,\"gap99\":%.4f}\n",
           done, errors, seconds, (double)done / seconds, (long long)bytes_received, events, reads,
           percentile(&latency, .5), percentile(&latency, .9), percentile(&latency, .99), percentile(&latency, 1),
           percentile(&first_event, .5), percentile(&first_event, .99), percentile(&gap, .5), percentile(&gap, .99));
}

int main(int argc, char **argv) {
    read_options(argc, argv);
    signal(SIGPIPE, SIG_IGN);
    prepare_request();
    epoll_fd = epoll_create1(0);
    Connection *all = must(calloc((size_t)options.connections, sizeof *all));
    for (int i = 0; i < options.connections; i++) open_connection(&all[i]);

    int64_t begin = now_ns(), stop = begin + options.stop_ns;
    for (int i = 0; i < options.connections && issued < options.requests; i++) start_request(&all[i]);
    struct epoll_event ready[256];
    while (done < options.requests) {
        int64_t now = now_ns();
        if (now > stop && (done == issued || now > stop + STRAGGLERS_NS)) break;
        int count = epoll_wait(epoll_fd, ready, 256, 100);
        for (int i = 0; i < count; i++) {
            Connection *c = ready[i].data.ptr;
            bool was_busy = c->busy;
            receive(c);
            if (was_busy && !c->busy && issued < options.requests && now < stop) start_request(c);
        }
    }
    double seconds = (double)(now_ns() - begin) / 1e9;
    for (int i = 0; i < options.connections; i++)
        if (all[i].busy) {
            done++;
            count_error("no answer in time", &all[i]);
        }
    free(all);
    if (done == 0) fail("no request was made");
    print_result(seconds);
    return 0;
}
