// Classes in managed memory by an overloaded operator new, used by the host and by kernels.
#include <cstdio>
#include <cstring>
#include <string>
#include <iostream>

class Managed {
 public:
  void *operator new(size_t len) {
    void *ptr;
    cudaMallocManaged(&ptr, len);
    cudaDeviceSynchronize();
    return ptr;
  }
  void operator delete(void *ptr) {
    cudaDeviceSynchronize();
    cudaFree(ptr);
  }
};

class umString : public Managed {
  int length;
  char *data;
 public:
  umString() : length(0) { data = 0; }
  umString(const char *s) { length = 0; data = 0; _realloc(strlen(s)); strcpy(data, s); }
  umString(const umString &s) { length = 0; data = 0; _realloc(s.length); strcpy(data, s.data); }
  ~umString() { cudaFree(data); }
  umString &operator=(const char *s) { _realloc(strlen(s)); strcpy(data, s); return *this; }
  __host__ __device__ char &operator[](int pos) { return data[pos]; }
  __host__ __device__ const char *c_str() const { return data; }
  __host__ __device__ int size() const { return length; }
 private:
  void _realloc(int len) {
    cudaFree(data);
    length = len;
    cudaMallocManaged(&data, length + 1);
  }
};

struct umDataElement : public Managed {
  umString name;
  int value;
};

__global__ void Kernel_by_pointer(umDataElement *elem) {
  printf("On device: name=%s, value=%d\n", elem->name.c_str(), elem->value);
  elem->name[0] = 'p';
  elem->value++;
}
__global__ void Kernel_by_ref(umDataElement &elem) {
  elem.name[0] = 'r';
  elem.value *= 2;
}
__global__ void Kernel_by_value(umDataElement elem) { elem.name[0] = 'v'; elem.value++; }

void launch_by_pointer(umDataElement *elem) { Kernel_by_pointer<<<1, 1>>>(elem); cudaDeviceSynchronize(); }
void launch_by_ref(umDataElement &elem) { Kernel_by_ref<<<1, 1>>>(elem); cudaDeviceSynchronize(); }
void launch_by_value(umDataElement elem) { Kernel_by_value<<<1, 1>>>(elem); cudaDeviceSynchronize(); }

int main(void) {
  umDataElement *e = new umDataElement;
  e->value = 10;
  e->name = "hello";
  launch_by_value(*e);
  bool good = e->value == 10 && std::string(e->name.c_str()) == "hello";
  launch_by_pointer(e);
  good = good && e->value == 11 && std::string(e->name.c_str()) == "pello";
  launch_by_ref(*e);
  good = good && e->value == 22 && e->name[0] == 'r' && e->name.size() == 5;
  std::cout << e->name.c_str() << " " << e->value << std::endl;
  delete e;
  puts(good ? "PASS" : "FAIL");
  return good ? 0 : 1;
}
