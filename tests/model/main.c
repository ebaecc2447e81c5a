/* main.c - the explorer's command line.
 *
 *   explorer --list                         scenarios: name, small or large, rule
 *   explorer --sites                        atomic call sites of the core and what can be done to each
 *   explorer [--scenario NAME] ...          exhaust one scenario, or all
 *     --weaken FILE:LINE:OPERATION=step|split|blind|skip with one site weakened
 *     --random SEED --executions N          draw executions instead
 *     --seconds S                           give up after so long
 *     --family PREFIX                       only those whose name begins so
 *     --small | --large | --litmus          only those
 *     --until-fault                         end with the first scenario that shows a fault
 *     --reached                             name the core's sites that each one has run
 *     --plain                               take no state for one met before: the reduction's own test
 *     --replay CHOICES                      run one execution again, and tell its steps
 *
 * One line per scenario: name, outcome, figures; a fault adds its story and the line that repeats it. Exit 1 when there
 * was a fault, 3 when a scenario was not exhausted. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "explorer.h"

extern struct model_site __start_model_sites[];
extern struct model_site __stop_model_sites[];

static const char *const operation_names[] = {"load", "store", "cas", "exchange", "add", "fence"};
static const char *const order_names[] = {"relaxed", "acquire", "release", "seq_cst"};

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL ? path : slash + 1;
}

/* Only the core's own sites count; the scenarios use some as well. */
static bool in_core(const struct model_site *site)
{
    const char *name = base_name(site->file);
    return strstr(name, "scenarios.c") == NULL && strcmp(name, "litmus.c") != 0;
}

/* All of them, one after the other; NULL behind the last. */
static const struct scenario *scenario_at(size_t i)
{
    const struct {
        const struct scenario *first;
        size_t count;
    } tables[] = {{litmus, litmus_count}, {scenarios, scenarios_count}, {group_scenarios, group_scenarios_count},
                {keyed_scenarios, keyed_scenarios_count}, {space_scenarios, space_scenarios_count},
                {pads_scenarios, pads_scenarios_count}, {sync_scenarios, sync_scenarios_count}};
    for (size_t table = 0; table < sizeof tables / sizeof tables[0]; table++) {
        if (i < tables[table].count) {
            return &tables[table].first[i];
        }
        i -= tables[table].count;
    }
    return NULL;
}

static bool is_rmw(const struct model_site *site)
{
    return site->operation == MODEL_CAS || site->operation == MODEL_EXCHANGE || site->operation == MODEL_ADD;
}

static void site_name(const struct model_site *site, char *name, size_t room)
{
    snprintf(name, room, "%s:%d:%s", base_name(site->file), site->line, operation_names[site->operation]);
}

static void list_sites(void)
{
    for (struct model_site *site = __start_model_sites; site < __stop_model_sites; site++) {
        char name[80];
        if (in_core(site)) {
            site_name(site, name, sizeof name);
            const bool skips = site->operation == MODEL_STORE || site->operation == MODEL_ADD;
            printf("%s %s%s%s%s%s\n", name, order_names[site->order], site->order == MODEL_RELAXED ? "" : " step",
                   is_rmw(site) ? " split" : "", site->operation == MODEL_CAS ? " blind" : "", skips ? " skip" : "");
        }
    }
}

static enum model_weakness weakness_named(const char *name)
{
    static const char *const names[] = {"", "step", "split", "blind", "skip"};
    for (int weakness = MODEL_ONE_STEP; weakness <= MODEL_SKIP; weakness++) {
        if (strcmp(name, names[weakness]) == 0) {
            return (enum model_weakness)weakness;
        }
    }
    fprintf(stderr, "no such weakening: %s\n", name);
    exit(2);
}

static void weaken(const char *wanted)
{
    const char *equals = strchr(wanted, '=');
    bool known = false;
    for (struct model_site *site = __start_model_sites; equals != NULL && site < __stop_model_sites; site++) {
        char name[80];
        site_name(site, name, sizeof name);
        if (strncmp(wanted, name, (size_t)(equals - wanted)) == 0 && name[equals - wanted] == 0) {
            site->weakness = weakness_named(equals + 1); /* a line in an inline function is several sites */
            known = true;
        }
    }
    if (!known) {
        fprintf(stderr, "no such site: %s\n", wanted);
        exit(2);
    }
}

static const char *outcome(const struct search *search)
{
    return search->fault ? "FAULT" : search->exhausted ? "exhausted" : search->random ? "sampled" : "cut short";
}

static void report(const struct search *search, const char *weakened)
{
    printf("%-34s %-9s %12llu executions %10llu states %12.4g covered %8.3f s %9.0f/s\n", search->scenario->name,
           outcome(search), (unsigned long long)search->executions, (unsigned long long)search->states,
           search->covered, search->took, (double)search->executions / (search->took > 0 ? search->took : 1e-9));
    if (search->fault) {
        printf("    %s\n    repeat: explorer --scenario %s%s%s --replay %s\n", search->story, search->scenario->name,
               weakened == NULL ? "" : " --weaken ", weakened == NULL ? "" : weakened,
               search->choices[0] == 0 ? "0" : search->choices);
    }
    fflush(stdout);
}

struct wishes {
    struct search search;
    const char *scenario;
    const char *family;
    const char *weakened;
    bool small;
    bool large;
    bool litmus;
    bool until_fault;
    bool reached;
};

static bool read_flag(struct wishes *wishes, const char *option)
{
    const struct {
        const char *name;
        bool *flag;
    } flags[] = {{"--small", &wishes->small}, {"--large", &wishes->large}, {"--litmus", &wishes->litmus},
                 {"--until-fault", &wishes->until_fault}, {"--reached", &wishes->reached},
                 {"--plain", &wishes->search.plain}};
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        if (strcmp(option, flags[i].name) == 0) {
            *flags[i].flag = true;
            return true;
        }
    }
    return false;
}

static void read_wish(struct wishes *wishes, const char *option, const char *value)
{
    if (strcmp(option, "--scenario") == 0) {
        wishes->scenario = value;
    } else if (strcmp(option, "--family") == 0) {
        wishes->family = value;
    } else if (strcmp(option, "--weaken") == 0) {
        wishes->weakened = value;
        weaken(value);
    } else if (strcmp(option, "--random") == 0) {
        wishes->search.random = true;
        wishes->search.seed = strtoull(value, NULL, 0);
    } else if (strcmp(option, "--executions") == 0) {
        wishes->search.limit = strtoull(value, NULL, 0);
    } else if (strcmp(option, "--seconds") == 0) {
        wishes->search.seconds = strtod(value, NULL);
    } else if (strcmp(option, "--replay") == 0) {
        wishes->search.replay = value;
    } else {
        fprintf(stderr, "no such option: %s\n", option);
        exit(2);
    }
}

static bool wanted(const struct wishes *wishes, const struct scenario *scenario)
{
    if (wishes->scenario != NULL) {
        return strcmp(scenario->name, wishes->scenario) == 0;
    }
    if (wishes->family != NULL && strncmp(scenario->name, wishes->family, strlen(wishes->family)) != 0) {
        return false;
    }
    const bool is_litmus = scenario->outcome != NULL;
    if (wishes->small || wishes->large || wishes->litmus) {
        return is_litmus ? wishes->litmus : scenario->large ? wishes->large : wishes->small;
    }
    return true;
}

/* The core's sites that were run since the last call. */
static void tell_reached(bool aloud)
{
    for (struct model_site *site = __start_model_sites; site < __stop_model_sites; site++) {
        char name[80];
        if (aloud && site->reached && in_core(site)) {
            site_name(site, name, sizeof name);
            printf("    reached %s\n", name);
        }
        site->reached = false;
    }
}

/* 0 as it should be, 1 a fault, 3 not exhausted. */
static int run_one(const struct wishes *wishes, const struct scenario *scenario)
{
    struct search search = wishes->search;
    search.scenario = scenario;
    search_run(&search);
    report(&search, wishes->weakened);
    tell_reached(wishes->reached);
    return search.fault ? 1 : search.exhausted || search.random || search.replay != NULL ? 0 : 3;
}

static int run(const struct wishes *wishes)
{
    int code = 0;
    uint32_t ran = 0;
    const struct scenario *scenario;
    for (size_t i = 0; (scenario = scenario_at(i)) != NULL; i++) {
        if (wanted(wishes, scenario)) {
            const int one = run_one(wishes, scenario);
            ran++;
            code = one == 1 || code == 1 ? 1 : one == 3 ? 3 : code;
            if (one == 1 && wishes->until_fault) {
                break;
            }
        }
    }
    return ran > 0 ? code : 2;
}

static void list_scenarios(void)
{
    const struct scenario *scenario;
    for (size_t i = 0; (scenario = scenario_at(i)) != NULL; i++) {
        const char *const kind = scenario->outcome != NULL ? "litmus" : scenario->large ? "large" : "small";
        printf("%s %s %s\n", scenario->name, kind, scenario->rule);
    }
}

int main(int count, char **arguments)
{
    struct wishes wishes = {.scenario = NULL};
    for (int i = 1; i < count; i++) {
        if (strcmp(arguments[i], "--list") == 0) {
            list_scenarios();
            return 0;
        }
        if (strcmp(arguments[i], "--sites") == 0) {
            list_sites();
            return 0;
        }
        if (!read_flag(&wishes, arguments[i])) {
            read_wish(&wishes, arguments[i], i + 1 < count ? arguments[i + 1] : "");
            i++;
        }
    }
    return run(&wishes);
}
