/* Preloaded into a process and its children: appends to the file that RECORD_CONNECTIONS_IN names one
   line for each port that they listen at or connect to, and for each host name that they look up. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static void note(const char *line, int length) {
    const char *path = getenv("RECORD_CONNECTIONS_IN");
    int file = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
    if (file < 0 || write(file, line, length) != length) {
        perror("RECORD_CONNECTIONS_IN");
        abort(); /* a record with gaps proves nothing */
    }
    close(file);
}

static void note_port(const char *verb, int descriptor, const struct sockaddr *address) {
    int port, type = 0, before = errno;
    socklen_t size = sizeof type;
    char line[64];
    if (address->sa_family == AF_INET)
        port = ntohs(((const struct sockaddr_in *)address)->sin_port);
    else if (address->sa_family == AF_INET6)
        port = ntohs(((const struct sockaddr_in6 *)address)->sin6_port);
    else
        return;
    getsockopt(descriptor, SOL_SOCKET, SO_TYPE, &type, &size);
    note(line, snprintf(line, sizeof line, "%s %s %d\n", verb,
                        type == SOCK_STREAM ? "TCP" : "UDP", port));
    errno = before;
}

int connect(int descriptor, const struct sockaddr *address, socklen_t size) {
    int (*next)(int, const struct sockaddr *, socklen_t) = dlsym(RTLD_NEXT, "connect");
    note_port("connect", descriptor, address);
    return next(descriptor, address, size);
}

ssize_t sendto(int descriptor, const void *data, size_t length, int flags,
               const struct sockaddr *address, socklen_t size) {
    ssize_t (*next)(int, const void *, size_t, int, const struct sockaddr *, socklen_t) =
        dlsym(RTLD_NEXT, "sendto");
    if (address)
        note_port("connect", descriptor, address);
    return next(descriptor, data, length, flags, address, size);
}

int listen(int descriptor, int backlog) {
    int (*next)(int, int) = dlsym(RTLD_NEXT, "listen");
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    if (getsockname(descriptor, (struct sockaddr *)&address, &size) == 0)
        note_port("listen", descriptor, (const struct sockaddr *)&address);
    return next(descriptor, backlog);
}

int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints,
                struct addrinfo **found) {
    int (*next)(const char *, const char *, const struct addrinfo *, struct addrinfo **) =
        dlsym(RTLD_NEXT, "getaddrinfo");
    char number[sizeof(struct in6_addr)], line[320];
    if (name && inet_pton(AF_INET, name, number) != 1 && inet_pton(AF_INET6, name, number) != 1)
        note(line, snprintf(line, sizeof line, "lookup %.255s\n", name));
    return next(name, service, hints, found);
}
