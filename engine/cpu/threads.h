/* A team of threads that run the same code in parallel. */
#pragma once
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>

/* A team's work: `run(task, team, thread)` in every thread. */
typedef struct team team;
typedef void (*work)(const void *task, team *t, int thread);

struct team {
  int count;
  work run;
  const void *task;
  atomic_int arrived, sense; /* of the barrier */
  atomic_int claimed;        /* parts of the work between two barriers that were claimed */
  atomic_int round, finished;
  pthread_mutex_t lock;
  pthread_cond_t begin;
};

static inline void pause_a_little(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

/* Waits until all threads arrive. `sense` is the thread's own, 0 when its work begins. */
static void barrier(team *t, int *sense) {
  if (t->count == 1) {
    atomic_store(&t->claimed, 0);
    return;
  }
  *sense = !*sense;
  if (atomic_fetch_add(&t->arrived, 1) == t->count - 1) {
    atomic_store(&t->arrived, 0);
    atomic_store(&t->claimed, 0);
    atomic_store(&t->sense, *sense);
    return;
  }
  /* Other threads may not be running: spin for a moment, then yield this core. */
  for (int spins = 0; atomic_load(&t->sense) != *sense; spins++) {
    pause_a_little();
    if (spins > 4000) sched_yield();
  }
}

/* One thread's share of 0..total. */
static inline void share(int total, int threads, int thread, int *first, int *last) {
  *first = (int)((int64_t)total * thread / threads);
  *last = (int)((int64_t)total * (thread + 1) / threads);
}

/* Claims the next parts of 0..total: `least` of them or a multiple, up to `most`. Returns 0 if none
 * are left. Allows one such division of work between two barriers. Pieces shrink towards the end,
 * so that all threads finish together, even if one of them is descheduled for a while. */
static inline int claim(team *t, int total, int least, int most, int *first, int *last) {
  const int left = total - atomic_load(&t->claimed);
  int wanted = t->count == 1 ? total : left / (2 * t->count) / least * least;
  wanted = wanted > most ? most : wanted < least ? least : wanted;
  *first = atomic_fetch_add(&t->claimed, wanted);
  *last = *first + wanted < total ? *first + wanted : total;
  return *first < total;
}

typedef struct {
  team *t;
  int thread;
} seat;

static void *wait_for_work(void *argument) {
  seat own = *(seat *)argument;
  team *t = own.t;
  free(argument);
  for (int seen = 0;;) {
    /* The next step usually follows at once; only then is spinning worthwhile. */
    for (int spins = 0; spins < 20000 && atomic_load(&t->round) == seen; spins++) pause_a_little();
    if (atomic_load(&t->round) == seen) {
      pthread_mutex_lock(&t->lock);
      while (atomic_load(&t->round) == seen) pthread_cond_wait(&t->begin, &t->lock);
      pthread_mutex_unlock(&t->lock);
    }
    seen = atomic_load(&t->round);
    t->run(t->task, t, own.thread);
    atomic_fetch_add(&t->finished, 1);
  }
  return NULL;
}

/* Creates a team that lives until the process ends. NULL if its threads cannot be started. */
static team *new_team(int threads) {
  if (threads < 1 || threads > 512) return NULL;
  team *t = calloc(1, sizeof(team));
  if (!t) return NULL;
  t->count = threads;
  pthread_mutex_init(&t->lock, NULL);
  pthread_cond_init(&t->begin, NULL);
  for (int i = 1; i < threads; i++) {
    pthread_t thread;
    seat *own = malloc(sizeof(seat));
    if (!own) return NULL;
    *own = (seat){t, i};
    if (pthread_create(&thread, NULL, wait_for_work, own)) return NULL;
  }
  return t;
}

/* Runs the task in all threads, including this one; returns when all are done. */
static void together(team *t, work run, const void *task) {
  t->run = run;
  t->task = task;
  atomic_store(&t->arrived, 0);
  atomic_store(&t->sense, 0);
  atomic_store(&t->claimed, 0);
  atomic_store(&t->finished, 0);
  if (t->count > 1) {
    pthread_mutex_lock(&t->lock);
    atomic_fetch_add(&t->round, 1);
    pthread_cond_broadcast(&t->begin);
    pthread_mutex_unlock(&t->lock);
  }
  run(task, t, 0);
  for (int spins = 0; atomic_load(&t->finished) < t->count - 1; spins++)
    if (spins > 1000) sched_yield();
}
