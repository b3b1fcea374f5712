/*
 * The parts of the service manager that Wine 8 lacks. Wine stores the dependencies of services, but ignores them. It
 * accepts recovery actions and forgets them. It knows few levels of the second configuration. It lists no dependants,
 * and doesn't notice the end of a process. This file stores the data in the registry, at the same place as Windows. It
 * doesn't execute recovery actions.
 *
 * This file calls Wine's own functions directly, because it is linked with advapi32.
 */
#include "mend.h"
#include <wchar.h>

#define KEY L"System\\CurrentControlSet\\Services\\"
#define LONGEST 256
#define DEPENDENCIES L"DependOnService"
#define FAILURES L"FailureActions"
#define MOST_BYTES 4096
#define START_TIMEOUT 60000 /* milliseconds */
#define DEEPEST 16          /* dependencies of dependencies */

/* Open handles with the names of their services. The number is enough for the programs on a host. */
#define MOST 64
static struct {
    SC_HANDLE handle;
    WCHAR name[LONGEST + 1];
} known[MOST];
static SRWLOCK guard = SRWLOCK_INIT;

static void forget(SC_HANDLE handle)
{
    int at;
    AcquireSRWLockExclusive(&guard);
    for (at = 0; at < MOST; at++)
        if (known[at].handle == handle)
            known[at].handle = NULL;
    ReleaseSRWLockExclusive(&guard);
}

static SC_HANDLE remember(SC_HANDLE handle, const WCHAR *name)
{
    int at = 0;
    if (handle == NULL || name == NULL)
        return handle;
    forget(handle);
    AcquireSRWLockExclusive(&guard);
    while (at < MOST - 1 && known[at].handle != NULL)
        at++;
    known[at].handle = handle;
    wcsncpy(known[at].name, name, LONGEST);
    ReleaseSRWLockExclusive(&guard);
    return handle;
}

static BOOL name_of(SC_HANDLE handle, WCHAR *name)
{
    int at;
    AcquireSRWLockShared(&guard);
    for (at = 0; at < MOST && known[at].handle != handle; at++)
        ;
    if (at < MOST)
        wcscpy(name, known[at].name);
    ReleaseSRWLockShared(&guard);
    return at < MOST;
}

static SC_HANDLE WINAPI open_service(SC_HANDLE manager, const WCHAR *name, DWORD access)
{
    return remember(OpenServiceW(manager, name, access), name);
}

static SC_HANDLE WINAPI create_service(SC_HANDLE manager, const WCHAR *name, const WCHAR *display, DWORD access, DWORD type, DWORD start, DWORD control,
                                       const WCHAR *path, const WCHAR *group, DWORD *tag, const WCHAR *needs, const WCHAR *account, const WCHAR *password)
{
    return remember(CreateServiceW(manager, name, display, access, type, start, control, path, group, tag, needs, account, password), name);
}

static BOOL WINAPI close_handle(SC_HANDLE handle)
{
    forget(handle);
    return CloseServiceHandle(handle);
}

static BOOL fail(DWORD error)
{
    SetLastError(error);
    return FALSE;
}

static const WCHAR *key_of(const WCHAR *service, WCHAR *path)
{
    return wcscat(wcscpy(path, KEY), service);
}

/* Returns the length of a value in bytes, or 0. */
static DWORD read_value(const WCHAR *service, const WCHAR *value, void *buffer, DWORD size)
{
    WCHAR path[sizeof KEY / sizeof(WCHAR) + LONGEST];
    return RegGetValueW(HKEY_LOCAL_MACHINE, key_of(service, path), value, RRF_RT_ANY, NULL, buffer, &size) == 0 ? size : 0;
}

static BOOL write_value(const WCHAR *service, const WCHAR *value, DWORD type, const void *data, DWORD size)
{
    WCHAR path[sizeof KEY / sizeof(WCHAR) + LONGEST];
    LSTATUS status = RegSetKeyValueW(HKEY_LOCAL_MACHINE, key_of(service, path), value, type, data, size);
    return status == 0 || fail(status);
}

/* The dependencies end with two NULs, as in the registry. */
static DWORD read_dependencies(const WCHAR *service, WCHAR *list)
{
    DWORD length = read_value(service, DEPENDENCIES, list, MOST_BYTES);
    if (length == 0)
        list[0] = list[1] = 0;
    return length;
}

static BOOL WINAPI query_config(SC_HANDLE service, QUERY_SERVICE_CONFIGW *config, DWORD size, DWORD *needed)
{
    WCHAR name[LONGEST + 1], list[MOST_BYTES / sizeof(WCHAR)];
    DWORD length = name_of(service, name) ? read_dependencies(name, list) : 0;
    DWORD start = size > length ? (size - length) & ~1u : 0;
    BOOL ok = QueryServiceConfigW(service, config, start, needed);
    *needed += length + 1;
    if (ok && length > 0)
        config->lpDependencies = memcpy((BYTE *)config + start, list, length);
    return ok;
}

/* The registry's form of SERVICE_FAILURE_ACTIONS: its pointers have 32 bits. */
struct failures {
    DWORD reset, message, command, count, offset;
    SC_ACTION actions[64];
};

static BOOL query_failures(const WCHAR *name, SERVICE_FAILURE_ACTIONSW *result, DWORD size, DWORD *needed)
{
    struct failures kept = { 0 };
    read_value(name, FAILURES, &kept, sizeof kept);
    *needed = sizeof *result + kept.count * sizeof *kept.actions;
    if (size < *needed)
        return fail(ERROR_INSUFFICIENT_BUFFER);
    memset(result, 0, sizeof *result);
    result->dwResetPeriod = kept.reset;
    result->cActions = kept.count;
    if (kept.count > 0)
        result->lpsaActions = memcpy(result + 1, kept.actions, kept.count * sizeof *kept.actions);
    return TRUE;
}

/* Without a pointer, the actions stay unchanged. Without an action, the reset period is deleted as well. */
static BOOL change_failures(const WCHAR *name, const SERVICE_FAILURE_ACTIONSW *want)
{
    const DWORD head = FIELD_OFFSET(struct failures, actions);
    struct failures kept = { want->cActions > 0 ? want->dwResetPeriod : 0, 0, 0, want->cActions, head };
    if (want->lpsaActions == NULL)
        return TRUE;
    if (want->cActions > sizeof kept.actions / sizeof *kept.actions)
        return fail(ERROR_INVALID_PARAMETER);
    memcpy(kept.actions, want->lpsaActions, want->cActions * sizeof *kept.actions);
    return write_value(name, FAILURES, REG_BINARY, &kept, head + want->cActions * sizeof *kept.actions);
}

/* The value of a level that is a single number. */
static const WCHAR *number_of(DWORD level)
{
    switch (level) {
    case SERVICE_CONFIG_DELAYED_AUTO_START_INFO:
        return L"DelayedAutostart";
    case SERVICE_CONFIG_FAILURE_ACTIONS_FLAG:
        return L"FailureActionsOnNonCrashFailures";
    case SERVICE_CONFIG_SERVICE_SID_INFO:
        return L"ServiceSidType";
    }
    return NULL;
}

static BOOL WINAPI query_config2(SC_HANDLE service, DWORD level, BYTE *buffer, DWORD size, DWORD *needed)
{
    WCHAR name[LONGEST + 1];
    const WCHAR *value = number_of(level);
    DWORD number = 0;
    if ((value == NULL && level != SERVICE_CONFIG_FAILURE_ACTIONS) || !name_of(service, name))
        return QueryServiceConfig2W(service, level, buffer, size, needed);
    if (value == NULL)
        return query_failures(name, (SERVICE_FAILURE_ACTIONSW *)buffer, size, needed);
    *needed = sizeof number;
    if (size < sizeof number)
        return fail(ERROR_INSUFFICIENT_BUFFER);
    read_value(name, value, &number, sizeof number);
    memcpy(buffer, &number, sizeof number);
    return TRUE;
}

static BOOL WINAPI change_config2(SC_HANDLE service, DWORD level, void *info)
{
    WCHAR name[LONGEST + 1];
    const WCHAR *value = number_of(level);
    if ((value == NULL && level != SERVICE_CONFIG_FAILURE_ACTIONS) || !name_of(service, name))
        return ChangeServiceConfig2W(service, level, info);
    if (value == NULL)
        return change_failures(name, info);
    return write_value(name, value, REG_DWORD, info, sizeof(DWORD));
}

static BOOL WINAPI query_status(SC_HANDLE service, SC_STATUS_TYPE level, BYTE *buffer, DWORD size, DWORD *needed)
{
    BOOL ok = QueryServiceStatusEx(service, level, buffer, size, needed);
    SERVICE_STATUS_PROCESS *status = (SERVICE_STATUS_PROCESS *)buffer;
    HANDLE process;
    if (!ok || level != SC_STATUS_PROCESS_INFO || status->dwProcessId == 0 || status->dwCurrentState == SERVICE_STOPPED)
        return ok;
    process = OpenProcess(SYNCHRONIZE, FALSE, status->dwProcessId);
    if (process == NULL ? GetLastError() == ERROR_INVALID_PARAMETER : WaitForSingleObject(process, 0) == WAIT_OBJECT_0) {
        status->dwCurrentState = SERVICE_STOPPED;
        status->dwProcessId = 0;
    }
    if (process != NULL)
        CloseHandle(process);
    return ok;
}

static BOOL needs(const WCHAR *service, const WCHAR *other)
{
    WCHAR list[MOST_BYTES / sizeof(WCHAR)];
    const WCHAR *at;
    read_dependencies(service, list);
    for (at = list; *at != 0; at += wcslen(at) + 1)
        if (_wcsicmp(at, other) == 0)
            return TRUE;
    return FALSE;
}

struct dependants {
    ENUM_SERVICE_STATUS_PROCESSW *all; /* services in the requested state */
    DWORD count, found, *order;        /* order contains the indexes of the dependants in all */
    BOOL *seen;
};

/* Sorts the dependants: each comes after the services that need it. The newest service comes first. */
static void collect(struct dependants *d, const WCHAR *name)
{
    DWORD i;
    for (i = d->count; i-- > 0;) {
        if (d->seen[i] || !needs(d->all[i].lpServiceName, name))
            continue;
        d->seen[i] = TRUE;
        collect(d, d->all[i].lpServiceName);
        d->order[d->found++] = i;
    }
}

static BOOL fill(const struct dependants *d, ENUM_SERVICE_STATUSW *entries, DWORD size, DWORD *needed, DWORD *returned)
{
    WCHAR *text = (WCHAR *)(entries + d->found);
    DWORD i;
    *returned = 0;
    *needed = d->found * sizeof *entries;
    for (i = 0; i < d->found; i++)
        *needed += (wcslen(d->all[d->order[i]].lpServiceName) + 1) * sizeof(WCHAR);
    if (size < *needed)
        return fail(ERROR_MORE_DATA);
    for (i = 0; i < d->found; i++) {
        const ENUM_SERVICE_STATUS_PROCESSW *from = &d->all[d->order[i]];
        entries[i].lpServiceName = entries[i].lpDisplayName = wcscpy(text, from->lpServiceName);
        memcpy(&entries[i].ServiceStatus, &from->ServiceStatusProcess, sizeof entries[i].ServiceStatus);
        text += wcslen(text) + 1;
    }
    *returned = d->found;
    return TRUE;
}

static BOOL WINAPI enumerate_dependants(SC_HANDLE service, DWORD state, ENUM_SERVICE_STATUSW *entries, DWORD size, DWORD *needed, DWORD *returned)
{
    WCHAR name[LONGEST + 1];
    struct dependants d = { 0 };
    BYTE *buffer = NULL;
    DWORD room = 1 << 20, missing, next = 0;
    BOOL ok = FALSE;
    SC_HANDLE manager = OpenSCManagerW(NULL, NULL, SC_MANAGER_ENUMERATE_SERVICE);
    if (manager == NULL)
        return FALSE;
    buffer = HeapAlloc(GetProcessHeap(), 0, room);
    d.all = (ENUM_SERVICE_STATUS_PROCESSW *)buffer;
    if (name_of(service, name) && buffer != NULL
        && EnumServicesStatusExW(manager, SC_ENUM_PROCESS_INFO, SERVICE_WIN32, state, buffer, room, &missing, &d.count, &next, NULL)) {
        d.order = HeapAlloc(GetProcessHeap(), 0, d.count * sizeof *d.order + 1);
        d.seen = HeapAlloc(GetProcessHeap(), HEAP_ZERO_MEMORY, d.count * sizeof *d.seen + 1);
        if (d.order != NULL && d.seen != NULL) {
            collect(&d, name);
            ok = fill(&d, entries, size, needed, returned);
        }
    }
    CloseServiceHandle(manager);
    missing = GetLastError();
    HeapFree(GetProcessHeap(), 0, d.order);
    HeapFree(GetProcessHeap(), 0, d.seen);
    HeapFree(GetProcessHeap(), 0, buffer);
    return ok || fail(missing);
}

/* Returns whether a started service reports in time that it is running. */
static BOOL await(SC_HANDLE service)
{
    SERVICE_STATUS_PROCESS status;
    DWORD waited, size;
    for (waited = 0; waited < START_TIMEOUT; waited += 10) {
        if (!query_status(service, SC_STATUS_PROCESS_INFO, (BYTE *)&status, sizeof status, &size) || status.dwCurrentState == SERVICE_STOPPED)
            return FALSE;
        if (status.dwCurrentState == SERVICE_RUNNING)
            return TRUE;
        Sleep(10);
    }
    return FALSE;
}

/* Starts the dependencies of a service. Wine accepts services that depend on themselves, so the depth is limited. */
static DWORD start_needed(SC_HANDLE manager, const WCHAR *name, int depth)
{
    WCHAR list[MOST_BYTES / sizeof(WCHAR)];
    const WCHAR *at;
    if (depth > DEEPEST)
        return ERROR_SERVICE_DEPENDENCY_FAIL;
    read_dependencies(name, list);
    for (at = list; *at != 0; at += wcslen(at) + 1) {
        SC_HANDLE needed = *at == SC_GROUP_IDENTIFIERW ? NULL : OpenServiceW(manager, at, SERVICE_START | SERVICE_QUERY_STATUS);
        DWORD error;
        if (*at == SC_GROUP_IDENTIFIERW)
            continue;
        if (needed == NULL)
            return ERROR_SERVICE_DEPENDENCY_DELETED;
        error = start_needed(manager, at, depth + 1);
        if (error == 0 && ((!StartServiceW(needed, 0, NULL) && GetLastError() != ERROR_SERVICE_ALREADY_RUNNING) || !await(needed)))
            error = ERROR_SERVICE_DEPENDENCY_FAIL;
        CloseServiceHandle(needed);
        if (error != 0)
            return error;
    }
    return 0;
}

static BOOL WINAPI start_service(SC_HANDLE service, DWORD count, const WCHAR **arguments)
{
    WCHAR name[LONGEST + 1];
    SC_HANDLE manager = OpenSCManagerW(NULL, NULL, SC_MANAGER_CONNECT);
    DWORD error = manager != NULL && name_of(service, name) ? start_needed(manager, name, 0) : 0;
    if (manager != NULL)
        CloseServiceHandle(manager);
    return error == 0 ? StartServiceW(service, count, arguments) : fail(error);
}

static void *linked;

const struct substitute service_substitutes[] = {
    { "OpenServiceW", (void *)open_service, &linked },
    { "CreateServiceW", (void *)create_service, &linked },
    { "CloseServiceHandle", (void *)close_handle, &linked },
    { "QueryServiceConfigW", (void *)query_config, &linked },
    { "QueryServiceConfig2W", (void *)query_config2, &linked },
    { "ChangeServiceConfig2W", (void *)change_config2, &linked },
    { "QueryServiceStatusEx", (void *)query_status, &linked },
    { "EnumDependentServicesW", (void *)enumerate_dependants, &linked },
    { "StartServiceW", (void *)start_service, &linked },
    { NULL, NULL, NULL },
};
