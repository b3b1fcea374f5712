/*
 * pdh.dll. Wine's own pdh.dll knows hardly any counters. kubelet reads some counters of its node, and doesn't start
 * without them. This DLL returns 1 for processors, processes and memory. Every other counter has one instance with the
 * value 0.
 */
#include <string.h>
#include <windows.h>

#define EXPORT __declspec(dllexport)

enum { more = (int)0x800007D2 /* PDH_MORE_DATA */, each = 1, total };

struct value {
    DWORD status;
    double number;
};

struct item {
    WCHAR *name;
    struct value value;
};

EXPORT LONG WINAPI PdhOpenQuery(const WCHAR *source, DWORD_PTR data, HANDLE *query)
{
    (void)source, (void)data;
    *query = (HANDLE)1;
    return 0;
}

EXPORT LONG WINAPI PdhAddEnglishCounterW(HANDLE query, const WCHAR *path, DWORD_PTR data, HANDLE *counter)
{
    (void)query, (void)data;
    *counter = (HANDLE)(wcschr(path, '*') ? (INT_PTR)each : (INT_PTR)total);
    return 0;
}

EXPORT LONG WINAPI PdhAddCounterW(HANDLE query, const WCHAR *path, DWORD_PTR data, HANDLE *counter)
{
    return PdhAddEnglishCounterW(query, path, data, counter);
}

EXPORT LONG WINAPI PdhCollectQueryData(HANDLE query)
{
    (void)query;
    return 0;
}

EXPORT LONG WINAPI PdhCloseQuery(HANDLE query)
{
    (void)query;
    return 0;
}

EXPORT LONG WINAPI PdhValidatePathW(const WCHAR *path)
{
    (void)path;
    return 0;
}

EXPORT LONG WINAPI PdhGetFormattedCounterValue(HANDLE counter, DWORD format, DWORD *type, struct value *value)
{
    (void)counter, (void)format;
    if (type)
        *type = 0;
    value->status = 0;
    value->number = 1;
    return 0;
}

/* If the buffer is too small, the function returns the required size. */
EXPORT LONG WINAPI PdhGetFormattedCounterArrayW(HANDLE counter, DWORD format, DWORD *size, DWORD *count, struct item *items)
{
    static WCHAR name[] = L"_Total";
    DWORD before = *size;
    (void)format;
    *count = 1;
    *size = sizeof *items;
    if (before < sizeof *items)
        return more;
    items->name = name;
    items->value.status = 0;
    items->value.number = counter == (HANDLE)(INT_PTR)total;
    return 0;
}
