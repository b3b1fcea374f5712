/* bcryptprimitives.dll, which Wine 8 lacks and every Go program needs. Its only function fills memory with random
 * bytes. */
#include <windows.h>

/* The exported name of RtlGenRandom. */
BOOLEAN NTAPI SystemFunction036(PVOID buffer, ULONG length);

__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE buffer, SIZE_T length)
{
    const SIZE_T most = 0x40000000;
    while (length > 0) {
        ULONG part = (ULONG)(length < most ? length : most);
        if (!SystemFunction036(buffer, part))
            return FALSE;
        buffer += part;
        length -= part;
    }
    return TRUE;
}
